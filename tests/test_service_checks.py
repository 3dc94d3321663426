"""What `doctor` says about staying up: no false alarm, and each alarm with its remedy."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from vastd import service_checks as checks
from vastd.service_checks import Service

GOOD = Service(
    booted=True, user="ann", has_manager=True, installed=True, enabled=True, lingers=True
)
NO_SYSTEMD = Service(
    booted=False, user="ann", has_manager=False, installed=False, enabled=False, lingers=False
)


def levels(service: Service, *, managed: bool, simulated: bool = False) -> dict[str, str]:
    found = checks.service_checks(service, managed=managed, simulated=simulated)
    assert all((check.level == "ok") == (check.fix is None) for check in found)
    return {check.id: check.level for check in found}


def test_a_service_that_is_enabled_and_lingers_is_well():
    assert levels(GOOD, managed=True) == {"service": "ok", "linger": "ok"}


def test_a_service_that_is_not_enabled_or_ends_at_logout_is_warned_about():
    assert levels(replace(GOOD, enabled=False), managed=True)["service"] == "warning"
    quiet = checks.service_checks(replace(GOOD, lingers=False), managed=True, simulated=False)

    assert quiet[1].level == "warning"
    assert quiet[1].fix == "loginctl enable-linger ann"
    assert "last session" in quiet[1].text


@pytest.mark.parametrize("installed", [False, True])
def test_started_by_hand_is_a_warning_only_where_systemd_could_do_it(installed: bool):
    there = replace(GOOD, installed=installed, enabled=False, lingers=False)

    assert levels(there, managed=False) == {"service": "warning"}
    fix = checks.service_checks(there, managed=False, simulated=False)[0].fix
    assert fix == f"vastctl daemon stop, then vastctl daemon {'start' if installed else 'install'}"
    assert levels(there, managed=False, simulated=True) == {"service": "ok"}
    assert levels(replace(there, has_manager=False), managed=False) == {"service": "ok"}
    assert levels(NO_SYSTEMD, managed=False) == {"service": "ok"}


def test_the_facts_are_read_from_the_files_systemd_goes_by(
    isolated_home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(checks, "BOOTED_DIR", tmp_path)
    monkeypatch.setattr(checks, "LINGER_DIR", tmp_path)
    monkeypatch.setattr(checks, "SHARED_UNIT_DIRS", (str(tmp_path / "shared"),))
    before = Service.of_this_user()
    units = isolated_home / ".config/systemd/user"
    (units / "default.target.wants").mkdir(parents=True)
    (units / "vastd.service").touch()
    (units / "default.target.wants/vastd.service").symlink_to("gone")
    (isolated_home / "run/systemd").mkdir()
    (isolated_home / "run/systemd/private").touch()
    (tmp_path / before.user).touch()

    after = Service.of_this_user()

    assert before == replace(NO_SYSTEMD, booted=True, user=before.user)
    assert after == replace(GOOD, user=before.user)
