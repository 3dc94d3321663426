"""One entry of the state file: its fields, and the words of its status."""

from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from vastd.core.market import InstanceStatus
from vastd.core.money import Micros
from vastd.core.rental import Phase
from vastd.projects.entry import (
    DESTROYED,
    REQUIRED_KEYS,
    StateEntry,
    expired,
    instant,
    status_word,
    to_json,
)

DAY_S = 86_400


def an_entry(**changes: object) -> StateEntry:
    entry = StateEntry(
        instance_id=41200377,
        offer_id=40990112,
        gpu_name="RTX 4090",
        num_gpus=1,
        dph=Micros(312_000),
        created_at=1794470745.9,
        phase="busy",
        provider_status="running",
        ssh_host="198.51.100.23",
        ssh_port=40117,
        experiments=("rank_sweep_s6", "rank_sweep_s7"),
        estimated_hours=3.0,
    )
    return replace(entry, **changes)


@pytest.mark.req("REC-01")
def test_an_entry_has_the_documented_fields_and_values() -> None:
    assert to_json(an_entry()) == {
        "instance_id": 41200377,
        "offer_id": 40990112,
        "gpu_name": "RTX_4090",
        "num_gpus": 1,
        "dph": 0.312,
        "ssh_url": "ssh://root@198.51.100.23:40117",
        "ssh_host": "198.51.100.23",
        "ssh_port": 40117,
        "created_at": "2026-11-12T08:05:45Z",
        "status": "running",
        "experiment": "rank_sweep_s7",
        "estimated_hours": 3.0,
        "estimated_cost": 0.936,
        "experiments": ["rank_sweep_s6", "rank_sweep_s7"],
        "ssh_user": "root",
    }
    assert list(to_json(an_entry()))[:13] == list(REQUIRED_KEYS)


def test_extras_stand_in_the_file_when_they_are_known() -> None:
    entry = to_json(
        an_entry(
            phase="gone",
            ended_at=1794470746.0,
            actual_cost=Micros(1_500_001),
            image="me/mine",
            label="tide-lab/a vastd-abcdefgh-r1",
            proxy_url="ssh://root@ssh4.vast.ai:30376",
        )
    )

    assert entry["destroyed_at"] == "2026-11-12T08:05:46Z"
    assert entry["actual_cost"] == 1.500001
    assert entry["image"] == "me/mine"
    assert entry["label"] == "tide-lab/a vastd-abcdefgh-r1"
    assert entry["proxy_url"] == "ssh://root@ssh4.vast.ai:30376"


def test_before_the_first_job_the_experiment_is_null() -> None:
    assert to_json(an_entry(experiments=()))["experiment"] is None


def test_without_an_endpoint_the_fields_keep_their_types() -> None:
    entry = to_json(an_entry(ssh_host=None, ssh_port=None))

    assert (entry["ssh_url"], entry["ssh_host"], entry["ssh_port"]) == ("", "", 0)


def test_nothing_is_destroyed_before_its_absence_is_proven() -> None:
    assert "destroyed_at" not in to_json(an_entry(phase="destroying", ended_at=5.0))


@pytest.mark.req("REC-04")
@pytest.mark.parametrize(
    ("phase", "provider", "word"),
    [
        ("creating", None, "loading"),
        ("booting", "loading", "loading"),
        ("booting", "exited", "loading"),
        ("verifying", "running", "loading"),
        ("ready", "running", "running"),
        ("ready", " RUNNING\n", "running"),
        ("ready", None, "running"),
        ("busy", "running", "running"),
        ("busy", "rebooting", "loading"),
        ("busy", "exited", "exited"),
        ("busy", "offline", "offline"),
        ("busy", "destroyed", "unknown"),
        ("busy", "some new word", "unknown"),
        ("collecting", "running", "running"),
        ("stopped", "running", "stopped"),
        ("stopped", "exited", "stopped"),
        ("destroying", "running", "destroying"),
        ("destroying", None, "destroying"),
        ("gone", None, "destroyed"),
        ("gone", "running", "destroyed"),
        ("a phase of the future", "running", "unknown"),
    ],
)
def test_the_status_follows_phase_and_provider(phase: str, provider: str | None, word: str) -> None:
    assert status_word(phase, provider) == word


@given(st.sampled_from(Phase), st.none() | st.sampled_from(InstanceStatus) | st.text(max_size=9))
def test_only_a_proven_end_is_called_destroyed_and_only_a_running_machine_running(
    phase: Phase, provider: str | None
) -> None:
    word = status_word(phase, provider)

    assert (word == DESTROYED) == (phase is Phase.GONE)
    if word == "running":
        assert phase in {Phase.READY, Phase.BUSY, Phase.COLLECTING}
        assert (provider or "").strip().lower() in {"", "running"}


@pytest.mark.req("DES-06")
def test_an_end_is_shown_for_seven_days() -> None:
    ended = an_entry(ended_at=100.0)

    assert not expired(ended, 100.0 + 7 * DAY_S)
    assert expired(ended, 100.5 + 7 * DAY_S)
    assert not expired(an_entry(), 1e12)


@pytest.mark.req("SSH-02")
@given(
    st.ip_addresses().map(str) | st.from_regex(r"[a-z]{1,9}\.example", fullmatch=True),
    st.integers(1, 65_535),
    st.sampled_from(["", "\n", " "]),
)
def test_the_url_has_the_host_and_port_that_stand_beside_it(
    host: str, port: int, tail: str
) -> None:
    entry = to_json(an_entry(ssh_host=host + tail, ssh_port=port))

    url = urlsplit(str(entry["ssh_url"]))
    assert (url.scheme, url.username) == ("ssh", "root")
    assert url.hostname == entry["ssh_host"] == host
    assert url.port == entry["ssh_port"] == port


@given(st.integers(0, 10**9), st.floats(0, 10_000))
def test_the_estimate_is_the_rate_times_the_hours(dph: int, hours: float) -> None:
    entry = to_json(an_entry(dph=Micros(dph), estimated_hours=hours))

    assert abs(entry["estimated_cost"] - entry["dph"] * hours) < 0.01
    assert abs(entry["estimated_cost"] - entry["dph"] * hours) <= 1e-6 + 1e-9 * entry["dph"] * hours


@pytest.mark.req("REC-15")
def test_an_instant_is_utc_to_the_second() -> None:
    assert instant(0.999) == "1970-01-01T00:00:00Z"
