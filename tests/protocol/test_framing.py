"""The framing decoder, without any I/O."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vastd_protocol.framing import (
    MAX_FRAME_BYTES,
    MAX_HEADER_BYTES,
    Decoder,
    FramingError,
    frame,
    line,
)

# A JSON object without raw newlines, as both framings carry it.
BODIES = st.lists(st.binary(max_size=40).map(lambda data: b'{"x":"%s"}' % data.hex().encode()))


def pieces(data, cuts):
    """Cut `data` at the given places (any numbers)."""
    places = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    return [data[a:b] for a, b in pairwise(places)]


def decoded(parts):
    """Return the bodies and whether the framing broke."""
    decoder = Decoder()
    found = []
    for part in parts:
        try:
            found += decoder.feed(part)
        except FramingError as error:
            return found + error.bodies, True
    return found + decoder.finish(), False


@given(
    bodies=BODIES, cuts=st.lists(st.integers(min_value=0)), encode=st.sampled_from([frame, line])
)
def test_any_split_gives_the_same_bodies(bodies, cuts, encode):
    data = b"".join(map(encode, bodies))

    assert decoded(pieces(data, cuts)) == (bodies, False)


@given(bodies=BODIES.filter(bool), encode=st.sampled_from([frame, line]))
def test_a_split_at_every_byte_gives_the_same_bodies(bodies, encode):
    data = b"".join(map(encode, bodies))

    assert decoded([data[at : at + 1] for at in range(len(data))]) == (bodies, False)


@given(data=st.binary(max_size=300), cuts=st.lists(st.integers(min_value=0)))
def test_garbage_only_ever_raises_a_framing_error(data, cuts):
    bodies, _broken = decoded(pieces(data, cuts))

    assert all(isinstance(body, bytes) for body in bodies)


@given(
    bodies=BODIES,
    garbage=st.sampled_from([b"no colon\r\n\r\n", b"Content-Length: x\r\n\r\n", b"A: b\r\n\r\n"]),
    cuts=st.lists(st.integers(min_value=0)),
)
def test_what_came_before_the_damage_is_the_same_however_it_was_split(bodies, garbage, cuts):
    data = b"".join(map(frame, bodies)) + garbage

    assert decoded(pieces(data, cuts)) == (bodies, True)


def test_the_length_counts_bytes_and_header_names_have_no_case():
    body = '{"x":"é€"}'.encode()

    assert frame(body) == b"Content-Length: 13\r\n\r\n" + body
    header = b"content-type: x\r\nCONTENT-LENGTH:13\r\n\r\n"
    assert Decoder().feed(header + body) == [body]


@pytest.mark.parametrize(
    "data",
    [
        b"Content-Length: %d\r\n\r\n" % (MAX_FRAME_BYTES + 1),
        b"Content-Length: -1\r\n\r\n",
        b"Content-Length: 1_0\r\n\r\n",
        b"Content-Length: 9999999999999\r\n\r\n",
        b"Content-Length: \r\n\r\n",
        b"Content-Length\r\n\r\n",
        b"Content-Length: 2\n\n{}",
        b"X: y\r\n\r\n",
        b"\r\n\r\n",
        b"\n",
        b"hello\n",
        b"X: " + b"y" * MAX_HEADER_BYTES,
        b"{" + b" " * MAX_FRAME_BYTES,
        b"{" + b" " * MAX_FRAME_BYTES + b"}\n",
    ],
)
def test_broken_framing_is_seen_as_soon_as_it_can_be(data):
    with pytest.raises(FramingError):
        Decoder().feed(data)


def test_a_header_as_long_as_allowed_is_read_and_one_byte_more_is_not():
    def header(size):
        end = b"\r\nContent-Length: 2"
        return b"X: " + b"y" * (size - len(end) - 3) + end + b"\r\n\r\n{}"

    assert Decoder().feed(header(MAX_HEADER_BYTES)) == [b"{}"]
    with pytest.raises(FramingError):
        Decoder().feed(header(MAX_HEADER_BYTES + 1))


def test_a_frame_as_large_as_allowed_is_read():
    body = b" " * MAX_FRAME_BYTES

    assert Decoder().feed(frame(body)) == [body]


@pytest.mark.parametrize(
    ("data", "bodies"),
    [
        (b"{}\n{}\r\n\n  \n{} ", [b"{}", b"{}", b"{}"]),
        (b"[1]\n", [b"[1]"]),
        (b"{}\nContent-Length: 2\r\n", [b"{}", b"Content-Length: 2"]),
    ],
)
def test_a_first_bracket_means_lines_for_good(data, bodies):
    assert decoded([data]) == (bodies, False)


def test_a_long_line_in_small_pieces_is_not_searched_again_and_again():
    decoder = Decoder()
    decoder.feed(b"{")
    for _ in range(2000):
        assert decoder.feed(b" " * 4096) == []

    assert decoder._scanned == 1 + 2000 * 4096
    assert len(decoder.feed(b"}\n")[0]) == 2 + 2000 * 4096
