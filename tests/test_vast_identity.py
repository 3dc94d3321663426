"""Rentals belong to one Vast; a start at another one is refused while something is rented."""

from pathlib import Path

import pytest

from vastd.errors import ConfigError, StoreError
from vastd.vast_identity import NAME, SIMULATED, hold_to, vast_identity

HERE = "https://console.vast.ai"
THERE = "https://proxy.example/vast"


def test_a_vast_is_told_by_its_address_however_spelled_and_a_simulator_by_nothing() -> None:
    assert vast_identity("HTTPS://Console.Vast.ai/", simulated=False) == HERE
    assert vast_identity(f"{THERE}/", simulated=False) == THERE
    ports = {vast_identity(f"http://127.0.0.1:{port}", simulated=True) for port in (1, 2)}
    assert ports == {SIMULATED}


@pytest.mark.parametrize(
    ("noted", "now", "remedy"),
    [
        (HERE, THERE, f"set vast.url to {HERE}"),
        (SIMULATED, HERE, "start vastd with --simulate"),
        (HERE, SIMULATED, f"start vastd without --simulate ({HERE})"),
    ],
)
@pytest.mark.parametrize(("live", "lost"), [(2, False), (0, True), (1, True)])
def test_another_vast_is_refused_and_both_are_named(
    tmp_path: Path, noted: str, now: str, remedy: str, live: int, lost: bool
) -> None:
    hold_to(tmp_path, noted, 0, uncertain=False)

    with pytest.raises(ConfigError) as raised:
        hold_to(tmp_path, now, live, uncertain=lost)

    for identity in (noted, now):
        assert identity in str(raised.value)
    assert remedy in raised.value.hint
    assert str(tmp_path / NAME) in raised.value.hint
    hold_to(tmp_path, noted, live, uncertain=lost)  # nothing was changed


def test_the_same_vast_and_an_older_state_directory_may_start(tmp_path: Path) -> None:
    hold_to(tmp_path, HERE, 3, uncertain=False)  # no note yet
    hold_to(tmp_path, HERE, 3, uncertain=True)

    assert (tmp_path / NAME).read_text() == f"{HERE}\n"


def test_with_nothing_rented_another_vast_is_a_new_beginning(tmp_path: Path) -> None:
    hold_to(tmp_path, HERE, 0, uncertain=False)
    hold_to(tmp_path, SIMULATED, 0, uncertain=False)

    with pytest.raises(ConfigError):
        hold_to(tmp_path, HERE, 1, uncertain=False)


def test_without_a_note_nothing_may_be_rented_but_what_is_rented_is_looked_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_args: object, **_rest: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("vastd.vast_identity.write_atomic", full)

    with pytest.raises(StoreError, match="No space left"):
        hold_to(tmp_path, HERE, 0, uncertain=False)
    hold_to(tmp_path, HERE, 1, uncertain=False)


def test_a_note_that_cannot_be_read_is_not_taken_for_none(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()

    with pytest.raises(StoreError, match="cannot read"):
        hold_to(tmp_path, HERE, 0, uncertain=False)
