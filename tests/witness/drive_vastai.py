"""Runs the official client many times in one process: a JSON order a line in, a JSON result out.

Started with the interpreter of the client's own virtualenv; every run is a fork, so no run sees
what another left in memory or in its home. Arguments: the home to use, and the names of the
cards as JSON, which the client takes from a cache when it is imported.
"""

import importlib
import json
import os
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

# What `vastai.cli.main` imports; others would add commands the program does not have.
COMMANDS = (
    "instances", "offers", "machines", "teams", "keys", "endpoints", "billing", "storage", "auth",
    "misc", "deployments", "metrics", "benchmarks", "price_increase", "repl", "update", "uninstall",
)  # fmt: skip
SEEDED_ROLE = "client"  # what the look-up of the account's role would have found and cached


def seed(home: Path, gpu_names: list[str], *, fresh: bool) -> None:
    """Make an empty home; unless `fresh` with what a first run would look up."""
    shutil.rmtree(home, ignore_errors=True)
    for name in ("config", "cache", "state", "data"):
        (home / name / "vastai").mkdir(parents=True)
    (home / "k.pub").write_text("ssh-ed25519 AAAAFROMFILE demo@host\n")
    (home / "p.json").write_text('{"api": {"misc": {}, "user_read": {}}}')
    cache = home / "cache" / "vastai" / "gpu_names_cache.json"
    cache.write_text(json.dumps({"gpu_names": gpu_names}))
    if not fresh:
        (home / "config" / "vastai" / "vast_role").write_text(SEEDED_ROLE)


def run(order: dict[str, Any], cli: Any) -> int:
    """Run one command line as the installed program does; return its exit code."""
    os.environ["VAST_API_KEY"] = order["key"]
    sys.argv = ["vastai", *order["argv"]]
    # What the client would wait between two tries says nothing about what it sends.
    time.sleep = lambda _seconds: None
    try:
        cli.main()
    except SystemExit as exc:
        if exc.code is None or isinstance(exc.code, int):
            return exc.code or 0
        print(exc.code, file=sys.stderr)
        return 1
    except BaseException:  # noqa: BLE001 - what the interpreter itself would print and exit with
        traceback.print_exc()
        return 1
    return 0


def forked(order: dict[str, Any], cli: Any) -> dict[str, Any]:
    """Run one order in a process of its own and return what came of it."""
    with (
        tempfile.TemporaryFile() as answers,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        answers.write(order["answers"].encode())
        answers.seek(0)
        child = os.fork()
        if child == 0:
            for number, file in enumerate((answers, out, err)):
                os.dup2(file.fileno(), number)
            code = run(order, cli)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        _, status = os.waitpid(child, 0)
        said = []
        for file in (out, err):
            file.seek(0)
            said.append(file.read().decode(errors="replace"))
    return {"exit": os.waitstatus_to_exitcode(status), "stdout": said[0], "stderr": said[1]}


def main() -> None:
    """Serve orders until there are no more."""
    home = Path(sys.argv[1])
    gpu_names = json.loads(sys.argv[2])
    seed(home, gpu_names, fresh=False)
    from vastai.cli import main as cli

    for name in COMMANDS:  # paid for once, before the forks
        importlib.import_module(f"vastai.cli.commands.{name}")

    for line in sys.stdin:
        order = json.loads(line)
        if order["home"] != "keep":
            seed(home, gpu_names, fresh=order["home"] == "fresh")
        print(json.dumps(forked(order, cli)), flush=True)


if __name__ == "__main__":
    main()
