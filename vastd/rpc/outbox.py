"""What waits to be written to one client, so that nobody else ever waits for it.

Rules
1. Answers are never dropped. A client that leaves one unread while it takes no bytes for
   `REPLY_STALL_S` is disconnected; it holds up nobody but itself until then.
2. Notifications are bounded: what does not fit is refused, and the one who sends it counts.
3. Answers overtake notifications.
"""

import math
from collections import deque
from typing import Final

import trio

from vastd.rpc.transport import Transport

REPLY_STALL_S: Final = 60.0  # guess: longer than a stopped editor or a debugger's pause matters
NOTE_LIMIT_BYTES: Final = 1024 * 1024  # guess: 12 chunks of a log in base64
BATCH_BYTES: Final = 64 * 1024  # guess: notifications joined into one write


class ClientStalled(Exception):
    """The client takes no bytes although an answer waits for it."""


class Outbox:
    """The queue and the writer of one connection."""

    def __init__(
        self,
        transport: Transport,
        *,
        reply_stall_s: float = REPLY_STALL_S,
        note_limit_bytes: int = NOTE_LIMIT_BYTES,
    ) -> None:
        self._transport = transport
        self._reply_stall_s = reply_stall_s
        self._note_limit_bytes = note_limit_bytes
        self._replies: deque[bytes] = deque()
        self._notes: deque[bytes] = deque()
        self._note_bytes = 0  # queued or being written
        self._writing = False
        self._owed = False  # an answer is among what is being written
        self._scope: trio.CancelScope | None = None  # around the write under way
        self._changed = trio.lowlevel.ParkingLot()
        self.reply_bytes = 0  # of answers queued or being written

    @property
    def idle(self) -> bool:
        """Return whether everything has been handed to the kernel."""
        queued = self._replies or self._notes or self._transport.unsent
        return not self._writing and not queued

    def reply(self, body: bytes) -> None:
        """Send an answer: at once if nothing is waiting, else before all notifications."""
        if self.idle and self._transport.send_now(body):
            if self._transport.unsent:
                self._owed = True
                self._wake()
            return
        self._replies.append(body)
        self.reply_bytes += len(body)
        if self._scope is not None and self._scope.deadline == math.inf:
            self.progressed()  # not for every answer: a flood of them is no sign of reading
        self._wake()

    def notify(self, body: bytes) -> bool:
        """Queue a notification; False if it does not fit and was dropped."""
        if self.idle and self._transport.send_now(body):
            if self._transport.unsent:
                self._wake()
            return True
        if self._note_bytes and self._note_bytes + len(body) > self._note_limit_bytes:
            return False
        self._notes.append(body)
        self._note_bytes += len(body)
        self._wake()
        return True

    async def wait_room(self) -> None:
        """Return when at most half of the room for notifications is taken."""
        await trio.lowlevel.checkpoint()
        while self._note_bytes > self._note_limit_bytes // 2:
            await self._changed.park()

    async def wait_read(self, limit_bytes: int) -> None:
        """Return when at most `limit_bytes` of answers are waiting."""
        while self.reply_bytes > limit_bytes:
            await self._changed.park()

    async def wait_idle(self) -> None:
        """Return when everything has been handed to the kernel."""
        while not self.idle:
            await self._changed.park()

    async def run(self) -> None:
        """Write what is queued, for ever.

        Raises:
            ClientStalled: an answer waited and the client took nothing for `reply_stall_s`.
            BrokenResourceError, ClosedResourceError: the connection is gone.
        """
        while True:
            while self.idle:
                await self._changed.park()
            self._writing = True
            replies, notes = self._take()
            self._owed = self._owed or bool(replies)
            with trio.CancelScope() as self._scope:
                self.progressed()
                await self._transport.send(replies + notes)
            if self._scope.cancelled_caught:
                raise ClientStalled
            self.reply_bytes -= sum(map(len, replies))
            self._note_bytes -= sum(map(len, notes))
            self._writing = self._owed = False
            self._scope = None
            self._wake()

    def progressed(self) -> None:
        """Start the patience with a client anew: called when it took some bytes.

        Patience ends only while an answer waits: a subscriber may stop reading for hours.
        """
        if self._scope is not None:
            owed = self._owed or self._replies
            self._scope.deadline = trio.current_time() + self._reply_stall_s if owed else math.inf

    def _take(self) -> tuple[list[bytes], list[bytes]]:
        """Return all answers or, if there are none, a batch of notifications."""
        replies = list(self._replies)
        self._replies.clear()
        notes: list[bytes] = []
        size = 0
        while self._notes and not replies and size < BATCH_BYTES:
            notes.append(self._notes.popleft())
            size += len(notes[-1])
        return replies, notes

    def _wake(self) -> None:
        self._changed.unpark_all()
