"""Many more stories than CI has time for: `make soak`, or `python -m support.soak FIRST LAST` from
`tests/`. It can be stopped at any time and gone on with at the seed it named last.
"""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Final

from support.seeded_story import play

LAST: Final = 20_000
CHUNK: Final = 8  # seeds: a worker that dies takes no more of them with it
EVERY: Final = 200  # seeds between two lines of progress


def told(seed: int) -> str | None:
    """Play one story; return what was broken, with the seed and its trace, or None."""
    try:
        play(seed)
    except Exception as exc:  # noqa: BLE001  whatever it is, the other seeds go on
        return f"seed {seed}: {type(exc).__name__}: {exc}"
    return None


def report(
    seeds: range,
    outcomes: Iterable[str | None],
    say: Callable[[str], None],
    clock: Callable[[], float],
) -> int:
    """Say every broken promise as it comes; return 1 if there was one. `outcomes`: in the order of
    `seeds`."""
    began, broken = clock(), 0
    for seed, wrong in zip(seeds, outcomes, strict=True):
        if wrong is not None:
            broken += 1
            say(wrong)
        if seed % EVERY == 0 or seed == seeds[-1]:
            rate = (seed - seeds[0] + 1) / max(clock() - began, 1e-9)
            say(f"up to seed {seed}: {broken} broken, {rate:.1f} stories a second")
    return 1 if broken else 0


def _outcomes(seeds: range) -> Iterator[str | None]:
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        yield from pool.map(told, seeds, chunksize=CHUNK)


def main(words: list[str]) -> int:
    first = int(words[0]) if words else 1
    seeds = range(first, (int(words[1]) if len(words) > 1 else LAST) + 1)
    return report(seeds, _outcomes(seeds), lambda text: print(text, flush=True), time.monotonic)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
