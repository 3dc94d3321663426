"""The installed programs in a home of their own: `vastd --simulate`, `vastctl`, and the simulator's truth."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

LIMIT_S = 60.0  # of any one wait; a whole run takes about ten seconds
FAST = """\
[timing]
settle_s = 1
list_interval_busy_s = 1
list_interval_idle_s = 1
ssh_spacing_s = 1
destroy_retry_s = 2
grace_s = 5
"""


class Installed:
    """One user's vastd. The daemon may be killed and started again; the simulator goes on."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = root / "home"
        self.state = root / "state"
        self.socket = root / "v.sock"
        self.project = root / "project"
        self.daemon: subprocess.Popen[bytes] | None = None
        self.enter: list[str] = []  # words before `vastd`: a namespace or user to run it in
        self.by_client: int | None = None  # the pid of a daemon that `daemon start` started
        for made in (self.home, self.project):
            made.mkdir()
        config = root / "config.toml"
        config.write_text(FAST)
        self.env = {
            "HOME": str(self.home),
            "PATH": os.environ["PATH"],
            "VASTD_STATE_DIR": str(self.state),
            "VASTD_SOCKET": str(self.socket),
            "VASTD_CONFIG": str(config),
            "LC_ALL": "C.UTF-8",
        }

    # -- processes

    def program(self, name: str) -> str:
        """Return the installed program beside this interpreter."""
        return str(Path(sys.executable).with_name(name))

    def start(self, *options: str, simulate: bool = True) -> None:
        """Start the daemon and return when it answers."""
        mode = ["--simulate"] if simulate else []
        log = (self.root / "vastd.log").open("ab")
        self.daemon = subprocess.Popen(
            [*self.enter, self.program("vastd"), *mode, *options], env=self.env, cwd=self.root,
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
        log.close()
        self._ready()

    def _ready(self) -> None:
        # The socket refuses or is missing until it listens: ask until it answers.
        for _ in range(600):
            if self.daemon is not None and self.daemon.poll() is not None:
                raise AssertionError(f"vastd ended with {self.daemon.returncode}: {self.log()}")
            if self.vastctl("daemon", "status").returncode == 0:
                return
        raise AssertionError(f"vastd does not answer: {self.log()}")

    def kill(self) -> None:
        """End the daemon as a power cut would."""
        assert self.daemon is not None
        self.daemon.send_signal(signal.SIGKILL)
        self.daemon.wait(LIMIT_S)

    def stop(self) -> int:
        """Ask the daemon to end; return its exit code."""
        assert self.daemon is not None
        self.daemon.send_signal(signal.SIGTERM)
        return self.daemon.wait(LIMIT_S)

    def start_by_client(self) -> dict:  # type: ignore[type-arg]
        """Start the daemon as its user does, by `vastctl daemon start`; return its status."""
        status = self.json("daemon", "start", "--simulate")
        self.by_client = status["daemon"]["pid"]
        return status

    def stop_by_client(self) -> dict:  # type: ignore[type-arg]
        """Stop that daemon; return what it leaves running."""
        left = self.json("daemon", "stop")
        self.by_client = None
        return left

    def log(self) -> str:
        """Return what the daemon logged."""
        return (self.root / "vastd.log").read_text()

    def vastctl(
        self, *words: str, cwd: Path | None = None, limit_s: float = LIMIT_S
    ) -> subprocess.CompletedProcess[str]:
        """Run one command to its end, without a terminal."""
        return subprocess.run(
            [self.program("vastctl"), *words], env=self.env, cwd=cwd or self.project, text=True,
            stdin=subprocess.DEVNULL, capture_output=True, timeout=limit_s, check=False,
        )  # fmt: skip

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """Start one command and return at once."""
        return self.begin_in(self.project, *words)

    def begin_in(self, directory: Path, *words: str) -> subprocess.Popen[str]:
        """Start one command in a directory and return at once."""
        return subprocess.Popen(
            [self.program("vastctl"), *words], env=self.env, cwd=directory, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def json(self, *words: str) -> dict:  # type: ignore[type-arg]
        """Run a command that must succeed, and return its `--json` document."""
        done = self.vastctl("--json", *words)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def wait_for(self, kind: str, *, after: int = 0, job_id: str | None = None) -> dict:  # type: ignore[type-arg]
        """Return the first event of that kind, of any job or one, following the trail."""
        words = [self.program("vastctl"), "--json", "events", "-f", "--after", str(after)]
        with subprocess.Popen(
            words, env=self.env, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        ) as follower:
            assert follower.stdout is not None
            try:
                for line in follower.stdout:
                    event = json.loads(line)
                    if event["kind"] == kind and job_id in (None, event["job_id"]):
                        return event
            finally:
                follower.kill()
        raise AssertionError(f"the trail ended without {kind}: {self.log()[-2000:]}")

    def wait_for_no_warning(self) -> None:
        """Return when the daemon has nothing to complain about any more."""
        for _ in range(300):  # it looks every few seconds; each question takes a moment
            if not self.json("daemon", "status")["warnings"]:
                return
        raise AssertionError(self.json("daemon", "status")["warnings"])

    # -- the simulator

    def simulator(self, path: str, body: bytes | None = None, method: str | None = None) -> dict:  # type: ignore[type-arg]
        """Ask the simulator what only a simulator knows."""
        info = json.loads((self.state / "simulator" / "service.json").read_bytes())
        request = urllib.request.Request(
            info["url"] + path,
            data=body,
            method=method,
            headers={"Authorization": f"Bearer {info['control_token']}"},
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=LIMIT_S) as reply:
            return json.loads(reply.read())

    def live(self) -> int:
        """Return how many contracts bill."""
        return len(self.simulator("/sim/status")["live"])

    def creates(self) -> list[str]:
        """Return the labels of all creates that were carried out."""
        calls = self.simulator("/sim/journal")["market"]
        return [c["label"] for c in calls if c["kind"] == "create" and not c.get("refused")]

    def end(self) -> None:
        """End everything that was started."""
        if self.daemon is not None and self.daemon.poll() is None:
            self.kill()
        if self.by_client is not None:
            with suppress(ProcessLookupError):
                os.kill(self.by_client, signal.SIGKILL)
        if (self.state / "simulator" / "service.json").exists():
            with suppress(OSError):  # it may have ended by itself
                self.simulator("/sim/shutdown", b"{}")


@contextmanager
def installed() -> Iterator[Installed]:
    """Yield a fresh installation; its processes end with the block."""
    root = Path(tempfile.mkdtemp(prefix="vi-", dir="/tmp"))  # a socket's path must be short
    made = Installed(root)
    try:
        yield made
    finally:
        made.end()
        shutil.rmtree(root, ignore_errors=True)


TRAINING = """\
import json, os, sys, time
steps = int(sys.argv[1])
os.makedirs("results", exist_ok=True)
for step in range(steps):
    print(f"step {step:04d}", flush=True)
    time.sleep(0.1)
with open("results/metrics.json", "w") as out:
    json.dump({"steps": steps}, out)
"""


def run_words(steps: int) -> Sequence[str]:
    """Return the words of a run of `TRAINING`, which lasts a tenth of a second per step."""
    return (
        "run", "-y", "--name", "lab", "--hours", "1", "--gpu-ram", "24", "--budget", "2",
        "--output", "results", "--", "python3", "train.py", str(steps),
    )  # fmt: skip
