"""The accept loop: every client in its own task, none able to disturb another.

Two nurseries: `changes` outlives `clients`, so that a client which leaves takes only its own
reads along. A stop closes the door first, then lets the changes under way be answered.
"""

import itertools
import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final

import trio

from vastd.rpc import websocket
from vastd.rpc.connection import GONE, MAX_IN_FLIGHT, Connection
from vastd.rpc.dispatch import Dispatcher
from vastd.rpc.errors import split_ends
from vastd.rpc.listen import peer_allowed
from vastd.rpc.outbox import NOTE_LIMIT_BYTES, REPLY_STALL_S, Outbox
from vastd.rpc.stream import ClientStream
from vastd.rpc.transport import FramedTransport, Transport, wants_websocket

STOP_GRACE_S: Final = 2.0  # guess; handlers decide and answer at once, long copies are repeated

logger = logging.getLogger(__name__)


async def serve(
    listeners: list[trio.SocketListener],
    dispatcher: Dispatcher[Any],
    *,
    stop: trio.Event | None = None,
    stop_grace_s: float = STOP_GRACE_S,
    origins: Collection[str] = (),
    may_connect: Callable[[trio.SocketStream], bool] = peer_allowed,
    max_in_flight: int = MAX_IN_FLIGHT,
    reply_stall_s: float = REPLY_STALL_S,
    note_limit_bytes: int = NOTE_LIMIT_BYTES,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve clients on `listeners` until `stop` is set; closes the listeners.

    Then no client is accepted and no request taken; reads and subscriptions end, changes under
    way get `stop_grace_s` to finish and to be answered. `origins` are the web pages that may
    open a WebSocket. `task_status` is told when clients can connect.
    """
    door = _Door(dispatcher, origins, may_connect, max_in_flight, reply_stall_s, note_limit_bytes)
    async with trio.open_nursery() as changes:
        async with trio.open_nursery() as clients:
            async with trio.open_nursery() as accepting:
                await accepting.start(
                    partial(
                        trio.serve_listeners,
                        partial(door.client, changes),
                        listeners,
                        handler_nursery=clients,
                    )
                )
                task_status.started()
                if stop is None:
                    await trio.sleep_forever()
                else:
                    await stop.wait()
                accepting.cancel_scope.cancel()
            for connection in list(door.connections):
                connection.drain()
            deadline = trio.current_time() + stop_grace_s
            clients.cancel_scope.deadline = deadline
        changes.cancel_scope.deadline = deadline


class _Door:
    """Takes each client in, and keeps whatever goes wrong with it from the others."""

    def __init__(
        self,
        dispatcher: Dispatcher[Any],
        origins: Collection[str],
        may_connect: Callable[[trio.SocketStream], bool],
        max_in_flight: int,
        reply_stall_s: float,
        note_limit_bytes: int,
    ) -> None:
        self._dispatcher = dispatcher
        self._origins = origins
        self._may_connect = may_connect
        self._max_in_flight = max_in_flight
        self._reply_stall_s = reply_stall_s
        self._note_limit_bytes = note_limit_bytes
        self._numbers = itertools.count(1)
        self.connections: set[Connection] = set()

    async def client(self, changes: trio.Nursery, stream: trio.SocketStream) -> None:
        """Serve one client to its end."""
        number = next(self._numbers)
        try:
            async with ClientStream(stream) as wire:
                if self._may_connect(stream):
                    await self._talk(number, wire, changes)
        except GONE:
            logger.debug("client gone connection=%d", number)
        except Exception as exc:
            # Third edge beside requests and effects: trio-websocket raises what a peer does
            # wrong through its nursery (its issues 23, 96, 184), and serving must go on.
            if websocket.peer_left(exc):
                logger.debug("client gone connection=%d", number)
            else:
                logger.exception("connection failed connection=%d", number)
        except BaseExceptionGroup as group:
            ends, rest = split_ends(group)
            logger.exception("connection failed connection=%d", number, exc_info=rest)
            raise ends from None

    async def _talk(self, number: int, wire: ClientStream, changes: trio.Nursery) -> None:
        if not await wants_websocket(wire):
            await self._connection(number, wire, FramedTransport(wire), changes)
            return
        async with trio.open_nursery() as nursery:
            transport = await websocket.accept(nursery, wire, self._origins)
            if transport is not None:
                try:
                    await self._connection(number, wire, transport, changes)
                finally:
                    await transport.aclose()
            nursery.cancel_scope.cancel()

    async def _connection(
        self, number: int, wire: ClientStream, transport: Transport, changes: trio.Nursery
    ) -> None:
        outbox = Outbox(
            transport,
            reply_stall_s=self._reply_stall_s,
            note_limit_bytes=self._note_limit_bytes,
        )
        wire.progressed = outbox.progressed
        connection = Connection(
            number,
            transport,
            outbox,
            self._dispatcher,
            changes,
            max_in_flight=self._max_in_flight,
        )
        self.connections.add(connection)
        try:
            await connection.run()
        finally:
            self.connections.discard(connection)
