"""Running one task per item, a few at a time, with the first error instead of a group."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeVar

import trio

from vastd.errors import VastdError

T = TypeVar("T")


async def for_each(items: Sequence[T], work: Callable[[T], Awaitable[None]], workers: int) -> None:
    """Call `work` for every item; the first `VastdError` cancels the others and is raised."""
    queue = iter(items)
    failed: list[VastdError] = []
    async with trio.open_nursery() as nursery:
        for _ in range(min(workers, len(items))):
            nursery.start_soon(_worker, queue, work, failed, nursery.cancel_scope)
    if failed:
        raise failed[0]


async def _worker(
    queue: Iterator[T],
    work: Callable[[T], Awaitable[None]],
    failed: list[VastdError],
    scope: trio.CancelScope,
) -> None:
    for item in queue:
        try:
            await work(item)
        except VastdError as exc:
            failed.append(exc)
            scope.cancel()
            return
