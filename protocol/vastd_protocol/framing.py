"""Framing without I/O: `Content-Length` headers, or one JSON object per line (DESIGN D5).

A decoder is fed bytes as they come, split anywhere, and gives back whole message bodies.
The first byte of a connection decides: `{` (or the `[` of a batch, which the receiver refuses
by name) means lines, anything else headers.
"""

from typing import Final

MAX_FRAME_BYTES: Final = 16 * 1024 * 1024  # CONTRACT 3
MAX_HEADER_BYTES: Final = 8 * 1024  # guess; real clients send under 100
_SEPARATOR: Final = b"\r\n\r\n"


class FramingError(Exception):
    """The peer broke the framing: the connection cannot be used any more.

    `bodies` are the whole messages that came before the damage in the same bytes, so that how
    the bytes were split never decides which of them are seen.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.bodies: list[bytes] = []


def frame(body: bytes) -> bytes:
    """Return `body` behind a Content-Length header; the length counts bytes."""
    return b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


def line(body: bytes) -> bytes:
    """Return `body` as one line. `body` must be JSON without raw newlines, as msgspec writes it."""
    return body + b"\n"


class Decoder:
    """Collect bytes and give back message bodies. One instance per connection."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._scanned = 0  # bytes of the buffer known to hold no newline
        self._expected: int | None = None  # body length once its header was read
        self.lines: bool | None = None  # None until the first byte

    def feed(self, data: bytes) -> list[bytes]:
        """Add `data`; return every body that is complete now, in order.

        Raises:
            FramingError: a header that is no header, or a frame over `MAX_FRAME_BYTES`. Its
                `bodies` hold what was complete before.
        """
        self._buffer += data
        if self.lines is None and self._buffer:
            self.lines = self._buffer[0] in b"{["
        bodies: list[bytes] = []
        try:
            if self.lines:
                self._take_lines(bodies)
            else:
                self._take_frames(bodies)
        except FramingError as error:
            error.bodies = bodies
            raise
        return bodies

    def finish(self) -> list[bytes]:
        """Return the last line if the peer closed without a newline; otherwise nothing."""
        rest = bytes(self._buffer).strip()
        self._buffer.clear()
        self._scanned = 0
        return [rest] if self.lines and rest else []

    def _take_lines(self, bodies: list[bytes]) -> None:
        while (end := self._buffer.find(b"\n", self._scanned)) >= 0:
            if end > MAX_FRAME_BYTES:
                raise FramingError(f"a line of {end} bytes, over {MAX_FRAME_BYTES}")
            body = bytes(self._buffer[:end]).strip()
            del self._buffer[: end + 1]
            self._scanned = 0
            if body:
                bodies.append(body)
        if len(self._buffer) > MAX_FRAME_BYTES:
            raise FramingError(f"a line of more than {MAX_FRAME_BYTES} bytes")
        # Without this mark a long line that comes in small pieces is searched again and again.
        self._scanned = len(self._buffer)

    def _take_frames(self, bodies: list[bytes]) -> None:
        while True:
            if self._expected is None and not self._read_header():
                return
            assert self._expected is not None
            if len(self._buffer) < self._expected:
                return
            bodies.append(bytes(self._buffer[: self._expected]))
            del self._buffer[: self._expected]
            self._expected = None

    def _read_header(self) -> bool:
        end = self._buffer.find(_SEPARATOR, 0, MAX_HEADER_BYTES + len(_SEPARATOR))
        if end < 0:
            # Judged before the header is whole: a peer that does not speak our framing would
            # otherwise wait for an answer that never comes.
            _check_first_row(bytes(self._buffer[: MAX_HEADER_BYTES + 1]))
            if len(self._buffer) > MAX_HEADER_BYTES:
                raise FramingError(f"no end of header within {MAX_HEADER_BYTES} bytes")
            return False
        header = bytes(self._buffer[:end])
        del self._buffer[: end + len(_SEPARATOR)]
        self._expected = _content_length(header)
        return True


def _check_first_row(header: bytes) -> None:
    row, newline, _ = header.partition(b"\n")
    if not newline:
        return
    if b":" not in row:
        raise FramingError("a header line without a colon")
    if not row.endswith(b"\r"):
        raise FramingError("a header line that does not end with CR LF")


def _content_length(header: bytes) -> int:
    for row in header.split(b"\r\n"):
        name, colon, value = row.partition(b":")
        if not colon:
            raise FramingError("a header line without a colon")
        if name.strip().lower() == b"content-length":
            text = value.strip()
            if not text.isdigit() or len(text) > 12:
                raise FramingError("Content-Length is not a number")
            length = int(text)
            if length > MAX_FRAME_BYTES:
                raise FramingError(f"a frame of {length} bytes, over {MAX_FRAME_BYTES}")
            return length
    raise FramingError("no Content-Length header")
