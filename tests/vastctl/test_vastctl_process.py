"""`vastctl` as a process: start-up cost, pipes, streams that cannot show everything."""

import json
import os
import subprocess
import sys
from pathlib import Path

import trio

from vastctl import demo_training
from vastctl.context import project_root
from vastd_protocol import envelope
from vastd_protocol.framing import Decoder, frame

HEAVY = {
    "trio", "asyncio", "subprocess", "shutil", "json", "difflib", "traceback", "logging", "httpx2",
    "rich", "urllib.request", "vastd", "vastd_protocol.methods.job", "vastd_protocol.methods.log",
}  # fmt: skip
EMPTY = (
    b'{"rentals":[],"inventory":{"state":"fresh","as_of":null,"foreign":0,"orphans":0},"totals":{}}'
)


async def serve(stream: trio.SocketStream, result: bytes) -> None:
    """Answer everything on one connection with `result`."""
    decoder = Decoder()
    async for data in stream:
        for body in decoder.feed(bytes(data)):
            ident = json.loads(body)["id"]
            await stream.send_all(frame(envelope.result(ident, result)))


async def run_against(
    result: bytes, command: list[str], place: Path, **options: object
) -> subprocess.CompletedProcess[bytes]:
    """Run a program with VASTD_SOCKET on a daemon that answers `result` to all."""
    path = str(place / "s")
    listening = trio.socket.socket(trio.socket.AF_UNIX)
    await listening.bind(path)
    listening.listen()
    listener = trio.SocketListener(listening)
    environment = {**os.environ, "VASTD_SOCKET": path, "VASTD_STATE_DIR": str(place)}
    environment.update(options.pop("env", {}))  # type: ignore[call-overload]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, lambda s: serve(s, result), [listener])
        with trio.fail_after(20):
            done = await trio.run_process(
                command, capture_stdout=True, capture_stderr=True, check=False, env=environment
            )
        nursery.cancel_scope.cancel()
    return done


async def test_ls_imports_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys; from vastctl.__main__ import main; code = main(['ls']);"
        "sys.stderr.write(' '.join(sys.modules)); sys.exit(code)"
    )

    done = await run_against(EMPTY, [sys.executable, "-c", code], tmp_path)

    assert done.returncode == 0
    assert b"no machines\ninventory: fresh\n" in done.stdout
    # Only what is not loaded by msgspec and the interpreter's start itself counts.
    loaded = set(done.stderr.decode().split())
    assert loaded & HEAVY == set()


async def test_a_closed_pipe_is_quiet(tmp_path: Path) -> None:
    """`vastctl … | head -0`: no traceback, and the code shells know."""
    vastctl = f"{sys.executable} -m vastctl rpc x"
    shell = f"({vastctl}; echo $? >&2) | true"

    done = await run_against(b'"' + b"x" * 300_000 + b'"', ["sh", "-c", shell], tmp_path)

    assert done.stderr == b"141\n"


async def test_a_terminal_without_the_characters_still_works(tmp_path: Path) -> None:
    result = EMPTY.replace(b"[]", '[{"rental_id":"r-1","name":"zoë","phase":"ready"}]'.encode(), 1)
    env = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}

    done = await run_against(result, [sys.executable, "-m", "vastctl", "ls"], tmp_path, env=env)

    assert done.returncode == 0
    assert b"zo?" in done.stdout


def test_the_project_is_the_git_root_or_the_directory(tmp_path: Path) -> None:
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    (tmp_path / "repo" / "a" / "b").mkdir(parents=True)
    (tmp_path / "plain").mkdir()

    assert project_root(str(tmp_path / "repo" / "a" / "b")) == str(tmp_path / "repo")
    assert project_root(str(tmp_path / "plain")) == str(tmp_path / "plain")


def test_the_demos_training_learns_and_resumes(tmp_path: Path) -> None:
    """Asked to end after one epoch, it saves; started again, it goes on from there."""
    here = Path.cwd()
    os.chdir(tmp_path)
    try:
        demo_training.asked_to_end = True
        ended = demo_training.train(epochs=12, seconds=0.0, seed=7)
        demo_training.asked_to_end = False
        saved = json.loads(Path("checkpoint.json").read_text())
        done = demo_training.train(epochs=12, seconds=0.0, seed=7)
    finally:
        os.chdir(here)
        demo_training.asked_to_end = False

    metrics = json.loads((tmp_path / "results" / "metrics.json").read_text())
    assert (ended, saved["epoch"], done) == (143, 1, 0)
    assert metrics["test_accuracy"] > 0.8
    assert len(json.loads((tmp_path / "results" / "model.json").read_text())["weights"]) == 8
    assert json.loads((tmp_path / "heartbeat.json").read_text())["epoch"] == 11
