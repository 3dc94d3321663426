"""A daemon played in memory, and `vastctl` run against it in this process."""

import base64
import io
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec import UNSET
from msgspec.json import decode, encode

from vastctl import __main__ as program
from vastctl.errors import ConnectionLost
from vastctl.greeting import HELLO_ID
from vastd_protocol import envelope
from vastd_protocol.errors import ErrorCode, ErrorData, ErrorObject
from vastd_protocol.methods import config, event, find, job, rental
from vastd_protocol.methods import daemon as daemons
from vastd_protocol.methods.log import LogAppended
from vastd_protocol.version import PROTOCOL_VERSION, VASTD_VERSION

NOW = "2026-11-30T12:00:00Z"
NOW_S = 1796040000.0


class Lose(Exception):
    """Raised by a handler: the connection breaks before the answer."""


class Refuse(Exception):
    """Raised by a handler: the daemon answers with this error."""

    def __init__(self, code: int, message: str = "no", **data: Any) -> None:
        super().__init__(message)
        kind = ErrorCode(code).name.lower()
        self.error = ErrorObject(code, message, ErrorData(kind=kind, **data))


class Daemon:
    """Answers by method name; a handler gets the params and may send notifications first."""

    def __init__(self) -> None:
        self.handlers: dict[str, Callable[[dict[str, Any]], Any]] = {}
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.links: list[Link] = []
        self.absent = 0  # so many connects fail first
        self.on("event.list", lambda p: event.EventListView(cursor=p.get("after") or 0))
        self.on("job.list", job.JobListView())
        self.on("config.get", a_config())
        self.on("initialize", a_hello())

    def on(self, name: str, answer: Any) -> None:
        """Answer `name` by a value or by a function of its params."""
        self.handlers[name] = answer if callable(answer) else lambda _p: answer

    def in_turn(self, name: str, *answers: Any) -> None:
        """Answer `name` by each of `answers` once; the last one stays."""
        left = deque(answers)

        def handler(params: dict[str, Any]) -> Any:
            answer = left.popleft() if len(left) > 1 else left[0]
            if isinstance(answer, Exception) or (
                isinstance(answer, type) and issubclass(answer, Exception)
            ):
                raise answer
            return answer(params) if callable(answer) else answer

        self.handlers[name] = handler

    def connect(self) -> "Link":
        from pathlib import Path

        from vastctl.link import absent

        if self.absent:
            self.absent -= 1
            raise absent(Path("/run/vastd.sock"), stale=False)
        self.links.append(Link(self))
        return self.links[-1]

    def notify(self, name: str, params: Any) -> None:
        """Send a notification on the newest connection."""
        self.links[-1].queue.append(envelope.notification(name, encode(params)))

    def event(self, cursor: int, kind: str, reason: str, **rest: Any) -> None:
        self.notify(
            event.PUBLISHED,
            event.EventView(cursor=cursor, at=NOW, kind=kind, reason=reason, **rest),
        )

    def log(self, offset: int, data: bytes, *, eof: bool = False, dropped: int = 0) -> None:
        piece = LogAppended(
            subscription_id="log",
            job_id="j-1",
            offset=offset,
            data=base64.b64encode(data).decode(),
            eof=eof,
            dropped=dropped,
        )
        self.notify("log.appended", piece)

    def asked(self, name: str) -> list[dict[str, Any]]:
        """Return the params of every request `name`."""
        return [params for method, params in self.requests if method == name]


class Link:
    """One connection to the played daemon."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.queue: deque[bytes] = deque()
        self.broken = False

    def send(self, body: bytes) -> None:
        request = decode(body, type=envelope.Request)
        params = {} if request.params is UNSET else decode(request.params)
        if request.id != HELLO_ID:
            self.daemon.requests.append((request.method, params))
        row = find(request.method)
        if row is not None:
            decode(encode(params), type=row.params)  # what we send must fit the contract
        assert request.id is not UNSET
        handler = self.daemon.handlers.get(request.method)
        assert handler is not None, f"{request.method} is not played"
        try:
            result = handler(params)
        except Lose:
            self.broken = True
        except Refuse as exc:
            self.queue.append(envelope.failure(request.id, exc.error))
        else:
            self.queue.append(envelope.result(request.id, encode(result)))

    def receive(self, timeout_s: float | None) -> bytes | None:
        if self.queue:
            return self.queue.popleft()
        if self.broken:
            raise ConnectionLost("the daemon is gone")
        if timeout_s is not None and timeout_s < 1:
            return None  # asked again until a real deadline of a few milliseconds has passed
        raise AssertionError("would wait for ever: nothing is queued")

    def close(self) -> None:
        self.broken = True


class Stream(io.TextIOWrapper):
    """A stream in memory that may claim to be a terminal."""

    def __init__(self, *, tty: bool = False, encoding: str = "utf-8") -> None:
        super().__init__(io.BytesIO(), encoding=encoding, newline="", write_through=True)
        self._tty = tty

    def isatty(self) -> bool:
        return self._tty

    @property
    def bytes(self) -> bytes:
        self.flush()
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue()

    @property
    def text(self) -> str:
        return self.bytes.decode(errors="replace")


class Ran:
    """What a run of `vastctl` left."""

    def __init__(self, code: int, out: Stream, err: Stream) -> None:
        self.code = code
        self.out = out.text
        self.err = err.text
        self.out_bytes = out.bytes


@pytest.fixture
def daemon() -> Daemon:
    return Daemon()


@pytest.fixture
def vastctl(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> Iterator[Callable[..., Ran]]:
    """Run `vastctl WORDS` against the played daemon; `answers` are typed on a terminal."""
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("VASTD_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("vastctl.client.FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr("vastctl.client.LONGEST_PAUSE_S", 0.0)
    time.tzset()

    def run(*words: str, tty: bool = False, answers: str | None = None) -> Ran:
        out, err = Stream(tty=tty), Stream(tty=tty or answers is not None)
        if answers is not None:
            monkeypatch.setattr("sys.stdin", io.StringIO(answers))
        code = program.main(
            list(words),
            link=daemon.connect,
            out=out,
            err=err,
            project="/home/me/lab",
            now=lambda: NOW_S,
            stdin_tty=answers is not None,
        )
        return Ran(code, out, err)

    yield run
    monkeypatch.undo()
    time.tzset()


def a_hello(protocol: int = PROTOCOL_VERSION, version: str = VASTD_VERSION) -> Any:
    info = daemons.DaemonInfo(version=version, pid=7, started_at=NOW, simulated=False)
    return daemons.InitializeView(protocol_version=protocol, daemon=info)


def a_config() -> config.ConfigView:
    facts = {"budget.per_job_usd": 10.0, "defaults.max_runtime_s": 43_200.0}
    return config.ConfigView(
        path="/home/me/config.toml",
        settings=[
            config.SettingView(key=key, value=value, origin="default", default=value)
            for key, value in facts.items()
        ],
    )


def a_rental(**changes: Any) -> rental.RentalView:
    facts: dict[str, Any] = {
        "rental_id": "r-1",
        "name": "lab",
        "phase": "busy",
        "instance_id": 4711,
        "gpu_name": "RTX_4090",
        "num_gpus": 1,
        "gpu_ram_mb": 24576,
        "dph_usd": 0.312,
        "cost_usd": 0.156,
        "created_at": "2026-11-30T11:30:00Z",
        "deadline_at": "2026-11-30T23:30:00Z",
        "jobs": ["j-1"],
    }
    return rental.RentalView(**{**facts, **changes})


def a_job(**changes: Any) -> job.JobView:
    facts: dict[str, Any] = {
        "job_id": "j-1",
        "name": "lab",
        "command": ["python", "train.py"],
        "state": "running",
        "rental_id": "r-1",
        "project": "/home/me/lab",
    }
    return job.JobView(**{**facts, **changes})


@pytest.fixture
def make() -> Any:
    """The builders, for tests that cannot import this file by name."""

    class Make:
        rental = staticmethod(a_rental)
        job = staticmethod(a_job)
        hello = staticmethod(a_hello)
        lose = Lose
        refuse = Refuse
        stream = Stream

    return Make
