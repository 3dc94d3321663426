"""Measure what DESIGN 5 budgets and this version can measure; print one table with ratios.

Every figure is a median of runs taken in turn with its peer (A B A B …), because machines are noisy:
quote the ratios, not the seconds.
"""

import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.installed import Installed, installed

RUNS = 15
CALLS = 2000


def whole_process(argv: list[str], env: dict[str, str]) -> float:
    """Return the seconds from start to end of one process."""
    began = time.perf_counter()
    subprocess.run(argv, env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - began


def in_turn(ours: Callable[[], float], peer: Callable[[], float], runs: int) -> tuple[float, float]:
    """Return the medians of two measurements taken alternately, after one warm-up each."""
    ours(), peer()
    pairs = [(ours(), peer()) for _ in range(runs)]
    return statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs)


def list_command(vast: Installed) -> tuple[str, float, float, str]:
    """`vastctl ls` as a process, beside an interpreter that imports what it must."""
    ours = [vast.program("vastctl"), "ls"]
    floor = [sys.executable, "-c", "import msgspec, socket"]
    a, b = in_turn(
        lambda: whole_process(ours, vast.env), lambda: whole_process(floor, vast.env), RUNS
    )
    return "vastctl ls, whole process / import msgspec, socket", a, b, "<= 1.6"


def round_trip(vast: Installed) -> tuple[str, float, float, str]:
    """One RPC call on the socket, beside an echo of the same bytes by a bare trio server."""
    body = b'{"jsonrpc":"2.0","id":1,"method":"daemon.status"}\n'
    reply = _calls(str(vast.socket), body, 1)[1]
    echo = vast.root / "echo.sock"
    code = (
        "import sys, trio\n"
        "reply = sys.argv[2].encode()\n"
        "async def serve(stream):\n"
        "    async for _ in stream:\n"
        "        await stream.send_all(reply)\n"
        "async def main():\n"
        "    sock = trio.socket.socket(trio.socket.AF_UNIX)\n"
        "    await sock.bind(sys.argv[1])\n"
        "    sock.listen()\n"
        "    print(flush=True)\n"
        "    await trio.serve_listeners(serve, [trio.SocketListener(sock)])\n"
        "trio.run(main)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(echo), reply.decode()], stdout=subprocess.PIPE
    ) as peer:
        assert peer.stdout is not None
        peer.stdout.readline()
        try:
            a, b = in_turn(
                lambda: _calls(str(vast.socket), body, CALLS)[0],
                lambda: _calls(str(echo), body, CALLS)[0],
                5,
            )
        finally:
            peer.kill()
    return "RPC round trip / bare trio echo of the same reply", a, b, "<= 2.0"


def _calls(path: str, body: bytes, count: int) -> tuple[float, bytes]:
    """Return the seconds per call on one connection, and the last answer."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        lines = client.makefile("rb")
        began = time.perf_counter()
        answer = b""
        for _ in range(count):
            client.sendall(body)
            answer = lines.readline()
        return (time.perf_counter() - began) / count, answer


def memory_mb(vast: Installed) -> float:
    """Return the resident memory of the daemon at rest, in MB (Linux)."""
    assert vast.daemon is not None
    fields = Path(f"/proc/{vast.daemon.pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> None:
    """Run everything and print the table; `--json` prints it for programs."""
    with installed() as vast:
        vast.start()
        rows = [list_command(vast), round_trip(vast)]
        memory = memory_mb(vast)
    figures = [
        {"what": what, "ours_s": a, "peer_s": b, "ratio": a / b, "budget": budget}
        for what, a, b, budget in rows
    ]
    report = {
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "figures": figures,
        "daemon_at_rest_mb": memory,
    }
    if "--json" in sys.argv:
        print(json.dumps(report))
        return
    print(report["machine"])
    for row in figures:
        print(
            f"{row['what']:52} {row['ours_s'] * 1e3:9.3f} ms / {row['peer_s'] * 1e3:9.3f} ms"
            f" = {row['ratio']:.2f}  (budget {row['budget']})"
        )
    print(f"{'daemon at rest, no rentals':52} {memory:9.1f} MB{'':27}(budget <= 60 MB)")


if __name__ == "__main__":
    main()
