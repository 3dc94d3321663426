"""Money: integer micro-dollars, rounded up in time, never shown as less than it is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vastd.core import money


def test_dollars_become_micro_dollars_and_come_back() -> None:
    assert money.from_usd(0.312) == 312_000
    assert money.from_usd(0.0000005) == 0  # half rounds to even
    assert money.to_usd(312_001) == 0.312001


@pytest.mark.parametrize(
    ("rate", "seconds", "expected"),
    [
        (3_600, 1.0, 1),
        (3_600, 1.000001, 2),  # the microsecond counts, rounded up
        (3_600, 1.0000001, 1),  # less than a microsecond is float noise
        (1, 1.0, 1),
        (0, 1e9, 0),
        (360_000, 3600.0, 360_000),
        (360_000, 0.0, 0),
        (360_000, -5.0, 0),
    ],
)
def test_a_bill_for_seconds_is_rounded_up(rate: int, seconds: float, expected: int) -> None:
    assert money.for_seconds(rate, seconds) == expected


@given(st.integers(0, 10**8), st.integers(0, 10**7))
def test_a_bill_is_never_understated_and_at_most_one_micro_dollar_over(
    rate: int, seconds: int
) -> None:
    billed = money.for_seconds(rate, float(seconds))

    assert billed * 3600 >= rate * seconds
    assert (billed - 1) * 3600 < rate * seconds or billed == 0


@given(st.integers(0, 10**9), st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_bill_cut_in_two_is_never_cheaper(rate: int, first: int, second: int) -> None:
    whole = money.for_seconds(rate, float(first + second))

    parts = money.for_seconds(rate, float(first)) + money.for_seconds(rate, float(second))

    assert whole <= parts <= whole + 1


@pytest.mark.parametrize(
    ("micros", "shown"),
    [(0, "$0.00"), (1_234_567, "$1.23"), (100_000, "$0.10"), (99_900, "$0.0999"), (120, "$0.0001")],
)
def test_small_sums_are_shown_with_more_digits(micros: int, shown: str) -> None:
    assert money.show(micros) == shown


@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_sums_that_are_compared_never_look_equal_unless_they_are(one: int, other: int) -> None:
    shown, beside = money.show_two(one, other)
    rate, price = money.show_two_rates(one, other)

    assert (shown == beside) == (one == other)
    assert (rate == price) == (one == other)
    assert money.show_two(one, one) == (money.show(one), money.show(one))


@given(st.integers(0, 10**9), st.sampled_from((1, 99, 1_000, 4_999, 5_000, 9_999)))
def test_sums_that_are_nearly_equal_are_shown_with_as_many_digits_as_it_takes(
    one: int, more: int
) -> None:
    shown, beside = money.show_two(one, one + more)

    assert float(beside[1:]) > float(shown[1:])


def test_the_digits_of_compared_sums_grow_only_as_far_as_needed() -> None:
    assert money.show_two(10_000_000, 12_000_000) == ("$10.00", "$12.00")
    assert money.show_two(10_000_000, 10_004_000) == ("$10.0000", "$10.0040")
    assert money.show_two(10_000_000, 10_000_001) == ("$10.000000", "$10.000001")
    assert money.show_two_rates(400_000, 400_100) == ("$0.4000/h", "$0.4001/h")
