"""What the command line accepts as a value, and what it refuses."""

from argparse import ArgumentTypeError

import pytest

from vastctl import values, words


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("20m", 1200), ("2h", 7200), ("1d", 86400), ("1.5h", 5400), (" 2H ", 7200)],
)
def test_a_duration_is_a_number_with_its_unit(text: str, seconds: float) -> None:
    assert values.duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "20", "m", "-5m", "0s", "nan", "infs", "1e9h", "5 minutes", "2h30", "99999d", "٣m"]
)
def test_a_malformed_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match=r"365d|90s, 20m, 2h or 1d"):
        values.duration(text)


@pytest.mark.parametrize("read", [values.hours, values.usd, values.gpu_ram_gb, values.disk_gb])
@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "-1", "0", "1e300", "", "ten", "1_0", "٣"])
def test_no_odd_number_passes(read: object, text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        read(text)  # type: ignore[operator]


def test_sizes_may_carry_their_unit() -> None:
    assert values.gpu_ram_gb("24GB") == 24
    assert values.disk_gb("50 gib") == 50
    assert values.usd("$2.50") == 2.5


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "x", "", "129", "9" * 20])
def test_a_gpu_count_is_a_small_whole_number(text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        values.gpu_count(text)


@pytest.mark.parametrize("text", ["a", "a1-b", "0", "a" * 41])
def test_names_of_the_contract_pass(text: str) -> None:
    assert values.name(text) == text


@pytest.mark.parametrize("text", ["", "-a", "A", "a_b", "a b", "a" * 42, "ä", "a\n"])
def test_other_names_are_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        values.name(text)


@pytest.mark.parametrize("text", ["", "py torch", "a;b", "-v", "a\nb", "x" * 2000, "$(id)"])
def test_an_image_that_is_no_reference_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        values.image(text)


def test_an_image_with_registry_port_tag_and_digest_passes() -> None:
    text = "ghcr.io:443/org/img_a.b:1.0-cuda@sha256:" + "a" * 64
    assert values.image(text) == text


def test_a_heartbeat_is_a_path_with_an_optional_interval() -> None:
    assert values.heartbeat("out/hb.json") == ("out/hb.json", None)
    assert values.heartbeat("hb.json:60s") == ("hb.json", 60.0)
    with pytest.raises(ArgumentTypeError, match="malformed duration"):
        values.heartbeat("hb.json:sixty")


def test_a_bare_variable_takes_the_value_it_has_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB", "on=1")
    monkeypatch.delenv("ABSENT", raising=False)

    assert values.variable("A=b=c") == ("A", "b=c")
    assert values.variable("A=") == ("A", "")
    assert values.variable("WANDB") == ("WANDB", "on=1")
    with pytest.raises(ArgumentTypeError, match="not set here"):
        values.variable("ABSENT")
    with pytest.raises(ArgumentTypeError, match="no variable"):
        values.variable("1A=b")


def test_amounts_spans_and_sizes_are_short() -> None:
    assert [words.money(x) for x in (None, 0, 0.00412, 0.5, 1, 12.345, -0.65, -2)] == [
        "-", "$0.00", "$0.0041", "$0.5000", "$1.00", "$12.35", "-$0.6500", "-$2.00"
    ]  # fmt: skip
    assert [words.span(x) for x in (-3, 5, 65, 3661, 90000)] == [
        "0s",
        "5s",
        "1m05s",
        "1h01m",
        "1d01h",
    ]
    assert [words.size(x) for x in (0, 999, 1500, 4_000_000, 5e12)] == [
        "0 B", "999 B", "1.5 kB", "4.0 MB", "5.0 TB",
    ]  # fmt: skip


def test_an_unreadable_instant_is_unknown() -> None:
    assert words.epoch("yesterday") is None
    assert words.age(None, 0.0) == "-"
    assert words.countdown("1970-01-01T00:01:00Z", 0.0) == "in 1m00s"
    assert words.countdown("1970-01-01T00:01:00Z", 90.0) == "30s over"


def test_rates_have_three_decimals_and_a_fourth_below_a_cent() -> None:
    shown = [words.rate(usd) for usd in (None, 0.0, 0.0069, 0.01, 0.155, 1.5)]

    assert shown == ["-", "$0.000/h", "$0.0069/h", "$0.010/h", "$0.155/h", "$1.500/h"]


def test_limits_are_read_as_lengths_not_as_seconds() -> None:
    shown = [words.limit(s) for s in (0, 45, 90, 1200, 5400, 43_200, 86_400, 176_400)]

    assert shown == ["0s", "45s", "1m30s", "20m", "1h30m", "12h", "24h", "2d1h"]
    assert words.without_seconds("limit 43200 s, 2 x 60 s; 5 s") == "limit 12h, 2 x 1m; 5 s"
