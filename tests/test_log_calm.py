"""A trouble that repeats is told once a minute, in one line."""

import logging

from vastd.log_calm import EVERY_S, Calm


def test_a_repeated_trouble_is_one_line_a_minute_with_what_was_left_out():
    now = [0.0]
    calm, told = Calm(lambda: now[0]), []
    for second in range(130):
        now[0] = float(second)
        exc = OSError(24, "too many open files")
        record = logging.LogRecord(
            "x", logging.ERROR, "", 0, "accept: %s", ("EMFILE",), (type(exc), exc, None)
        )
        if calm.filter(record):
            told.append((second, record.getMessage(), record.exc_info))

    cause = "accept: EMFILE: [Errno 24] too many open files"
    assert EVERY_S == 60
    assert told == [
        (0, cause, None),
        (60, f"{cause} (59 more since the last line)", None),
        (120, f"{cause} (59 more since the last line)", None),
    ]
