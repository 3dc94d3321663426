"""Noticing that work waits: most requests are answered without, and need no second task."""

import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")


@types.coroutine
def tell_first_wait(
    work: Coroutine[Any, Any, T], waits: Callable[[], None]
) -> Generator[Any, Any, T]:
    """Run `work` in the current task; call `waits` just before it gives way for the first time.

    Work that never waits ends as a plain call does, without a turn of the event loop, so the
    caller sees to it that others get their turn.
    """
    try:
        trap = work.send(None)
        waits()
        # From here on PEP 380's `yield from`, which cannot begin in the middle.
        while True:
            try:
                answer = yield trap
            except GeneratorExit:
                work.close()
                raise
            except BaseException as exc:  # noqa: BLE001 - not caught: passed on to `work`
                trap = work.throw(exc)
            else:
                trap = work.send(answer)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
