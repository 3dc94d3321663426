"""`demo`: the main job end to end on a private simulated Vast, with a small real training."""

import os
import signal
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from msgspec import DecodeError
from msgspec.json import decode

from vastctl import simulated, words
from vastctl.arguments import did_you_mean, parse
from vastctl.client import Client, new_request_id
from vastctl.context import Context
from vastctl.errors import CliError, ConnectionLost, UsageError
from vastctl.link import connect
from vastctl.spawn import alive, await_answer, await_end, spawn, tail
from vastd_protocol.errors import ExitCode
from vastd_protocol.methods import daemon

EXAMPLES: Final = """\
  vastctl demo
  vastctl demo --fault create-answer-lost     the same, with something going wrong"""

# Real Vast wants patience; the simulated one answers at once. Values of issue 2.
CONFIG: Final = """\
[timing]
settle_s = 1
list_interval_busy_s = 1
list_interval_idle_s = 1
ssh_spacing_s = 1
destroy_retry_s = 2
"""
# Never let a demo find the way to the real Vast.
_NOT_INHERITED: Final = ("VAST_API_KEY", "VAST_URL", "XDG_RUNTIME_DIR", "CREDENTIALS_DIRECTORY")


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--fault", metavar="NAME", help=f"let this go wrong once: {', '.join(simulated.FAULTS)}"
    )


def run(ctx: Context) -> int:
    fault = ctx.args.fault
    if fault is not None and fault not in simulated.FAULTS:
        raise UsageError(
            f"there is no fault {fault!r}",
            hint=did_you_mean(
                fault, simulated.FAULTS, f"it is one of: {', '.join(simulated.FAULTS)}"
            ),
        )
    # A demo that is ended from outside must not leave daemon and simulator behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.default_int_handler)
    began = time.monotonic()
    project = _project()
    ctx.screen.step("info", f"project {project}: a small real training, `train.py`")
    with _private_place() as place:
        stage = _Stage(ctx, place)
        try:
            stage.open()
            if fault is not None:
                stage.break_something(fault)
            code = _run_job(stage, project)
            _tell_results(ctx, project)
            if not stage.nothing_left():
                code = code or ExitCode.UNCONFIRMED
        except CliError:
            stage.show_log()
            raise
        finally:
            stage.close()
    ctx.screen.step(
        "info", f"done in {words.span(time.monotonic() - began)}; nothing of it was real money"
    )
    return code


def _project() -> str:
    """Make the demo's project here, or in a temporary place where one may not write."""
    from importlib.util import find_spec
    from shutil import copyfile
    from tempfile import mkdtemp

    place = os.path.abspath("vastd-demo")
    try:
        os.makedirs(place, exist_ok=True)
        if not os.access(place, os.W_OK):
            raise PermissionError
    except OSError:
        place = mkdtemp(prefix="vastd-demo-")
    # Found, not imported: it is a program for the rented machine.
    spec = find_spec("vastctl.demo_training")
    assert spec is not None
    assert spec.origin is not None
    copyfile(spec.origin, os.path.join(place, "train.py"))
    # What earlier demos left is not sent again.
    Path(place, ".vastdignore").write_text("logs/\nvast-instances.json\n")
    for old in ("metrics.json", "model.json"):
        Path(place, "results", old).unlink(missing_ok=True)
    return place


@contextmanager
def _private_place() -> Iterator[Path]:
    """Give a directory of its own, short enough for a socket path; kept if something failed."""
    from shutil import rmtree
    from tempfile import mkdtemp

    base = "/tmp" if os.access("/tmp", os.W_OK) else None  # mkdtemp makes it private
    place = Path(mkdtemp(prefix="vastd-", dir=base))
    kept = False
    try:
        yield place
    except CliError as exc:
        kept = True
        exc.hint = exc.hint or f"everything vastd left is in {place}"
        raise
    finally:
        if not kept:
            rmtree(place, ignore_errors=True)


class _Stage:
    """The private daemon and its simulator, from their start to their end."""

    def __init__(self, ctx: Context, place: Path) -> None:
        self.ctx = ctx
        self.socket = place / "s"
        self._state = place / "state"
        self._log = place / "vastd.log"
        self._config = place / "config.toml"
        self.client = Client(lambda: connect(str(self.socket)), note=ctx.screen.note)
        self._pid: int | None = None

    def open(self) -> None:
        """Start vastd on its simulated Vast and wait until it answers."""
        self._config.write_text(CONFIG)
        kept = {k: v for k, v in os.environ.items() if k not in _NOT_INHERITED}
        own = {
            "VASTD_STATE_DIR": str(self._state),
            "VASTD_SOCKET": str(self.socket),
            "VASTD_CONFIG": str(self._config),
        }
        process = spawn(["--simulate"], self._log, {**kept, **own})
        self._pid = process.pid
        status = await_answer(self.client, process.poll, self._log)
        process.returncode = 0  # ended by `close`, by its pid
        self.ctx.screen.step(
            "info",
            f"a private vastd (pid {status.daemon.pid}) on the simulated Vast at {status.vast_url}",
        )
        if not status.daemon.simulated:
            raise CliError("this vastd is not on the simulated Vast: refusing to go on")

    def break_something(self, fault: str) -> None:
        """Arrange for `fault`."""
        service = simulated.find_service(self._state)
        if service is None:
            raise CliError("the simulator left no service.json: no fault can be injected")
        simulated.inject(service, fault)
        self.ctx.screen.step("warning", f"arranged to go wrong once: {fault.replace('-', ' ')}")

    def nothing_left(self) -> bool:
        """Ask the simulator itself whether anything still bills, and tell it."""
        service = simulated.find_service(self._state)
        if service is None:
            raise CliError("the simulator left no service.json: cannot ask what still bills")
        count = simulated.live_contracts(service)
        level = "error" if count else "info"
        self.ctx.screen.step(
            level, f"the simulated Vast reports {words.count(count, 'live contract')}"
        )
        return count == 0

    def show_log(self) -> None:
        """Tell the end of the daemon's log, which goes away with its directory."""
        for line in tail(self._log, 20):
            self.ctx.screen.say(f"  vastd: {line}")

    def close(self) -> None:
        """End daemon and simulator, whatever happened before."""
        service = simulated.find_service(self._state)
        if self._pid is not None and alive(self._pid):
            self._stop(self._pid)
        if service is not None:
            simulated.end(service)
            if service.pid is not None:
                await_end(service.pid, limit_s=5.0)

    def _stop(self, pid: int) -> None:
        self.client.close()
        try:
            wish = daemon.StopParams(request_id=new_request_id())
            self.client.call(daemon.STOP, wish, limit_s=5.0)
        except ConnectionLost:
            pass  # it ended before it answered
        except CliError:
            os.kill(pid, signal.SIGTERM)
        if not await_end(pid, limit_s=10.0):
            os.kill(pid, signal.SIGKILL)
            await_end(pid, limit_s=5.0)


def _run_job(stage: _Stage, project: str) -> int:
    """Give the command line a user would give, to the code a user would run."""
    ctx = stage.ctx
    words_given = [
        "--socket", str(stage.socket), "run", "-y", "--name", "demo",
        "--hours", "0.1", "--gpu-ram", "24", "--budget", "2", "--max-runtime", "10m",
        "--heartbeat", "heartbeat.json:10s", "--checkpoint", "checkpoint.json",
        "--output", "results", "--", "python3", "train.py",
    ]  # fmt: skip
    if ctx.json:
        words_given.insert(0, "--json")
    ctx.screen.note(f"$ vastctl {' '.join(words_given[words_given.index('run') :])}")
    parsed = parse(words_given)
    assert parsed.command is not None
    inner = Context(parsed.args, ctx.screen, stage.client, project=project, stdin_tty=False)
    inner.lasting = False
    return parsed.command.run(inner)


def _tell_results(ctx: Context, project: str) -> None:
    results = os.path.join(project, "results")
    try:
        metrics = decode(Path(results, "metrics.json").read_bytes())
    except (OSError, DecodeError):
        ctx.screen.step("error", f"there is no metrics.json in {results}")
        return
    accuracy = metrics.get("test_accuracy") if isinstance(metrics, dict) else None
    shown = (
        f"test accuracy {accuracy:.3f}" if isinstance(accuracy, float) else "metrics.json is home"
    )
    ctx.screen.step("info", f"results are in {results}: {shown}")
