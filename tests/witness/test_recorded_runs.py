"""What the official client was recorded to send is answered as recorded, and it still sends it."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from witness.official_client import environment_dir, official_client
from witness.recording import NO_ROUTE, load
from witness.replay import replay
from witness.report import Report, drive_all, replay_all, text_of
from witness.scenes import Scene

# A line of the table was changed on purpose when one of these is.
RECORDED = 265
IN_SCOPE = 182
WITHOUT_ROUTE = 46
SAME_REQUESTS = 253  # in the others the recording's server answered what we do not


def test_every_run_is_in_scope_or_says_why_not() -> None:
    runs = load()

    assert len(runs) == RECORDED
    assert all(run.reason for run in runs if not run.in_scope)
    assert {run.verdict for run in runs} == {"in", "out", NO_ROUTE}


@pytest.mark.sim
async def test_recorded_requests_get_answers_of_the_recorded_shape() -> None:
    runs, report = load(), Report()

    await replay_all(runs, report)

    assert (report.recorded, report.in_scope) == (RECORDED, IN_SCOPE)
    assert report.unlike == []
    assert report.without_route == WITHOUT_ROUTE
    assert report.unclean == []
    assert f"in scope {IN_SCOPE}, equal {IN_SCOPE}" in text_of(report, runs)


async def test_a_replay_sees_a_wrong_status_a_missing_key_and_another_type() -> None:
    show = next(run for run in load() if run.argv == ["show", "ssh-keys"] and run.in_scope)
    (ask,) = show.asks
    row = ask.response[0]

    async def problems(**changes: object) -> list[str]:
        other = msgspec.structs.replace(ask, **changes)
        return (await replay(msgspec.structs.replace(show, asks=[other]))).problems

    assert await problems() == []
    assert await problems(status=500) != []
    assert await problems(response=[{**row, "fingerprint": "x"}]) != []
    assert await problems(response=[{**row, "id": "71"}]) != []
    assert await problems(response=[]) != []


@pytest.mark.e2e
async def test_the_installed_client_sends_what_was_recorded(tmp_path: Path) -> None:
    runs, report = load(), Report()

    async with official_client(tmp_path / "home") as client:
        await drive_all(runs, report, client)

    assert report.asked_otherwise == []
    assert report.tracebacks == []
    assert report.same_requests == SAME_REQUESTS


def proxy_address(scene: Scene, shift: int = 0) -> str:
    (row,) = scene.market.instance_rows()
    return f"ssh://root@{row['ssh_host']}:{int(str(row['ssh_port'])) + shift}\n"


PRINTED: list[tuple[int, Callable[[Scene], str]]] = [
    (91, proxy_address),
    (92, lambda scene: proxy_address(scene, 1)),  # jupyter's second port
    (106, lambda _: "Required resources are currently unavailable, state change queued.\n"),
    (87, lambda _: "Instance 1001 not found or no longer exists.\n"),
    (58, lambda _: "Failed with error 400: error 404/3603: no_such_ask  Instance type by id {} is"),
    (61, lambda _: '{"error": true, "status_code": 400, "msg": "Your account lacks credit; see'),
    (208, lambda _: "No pending price increases.\n"),
    (180, lambda _: "No environment variables found.\n"),
    (252, lambda _: "Failed with error 429: "),
]


@pytest.mark.e2e
async def test_what_the_client_prints_fits_what_happened(tmp_path: Path) -> None:
    runs = load()

    async with official_client(tmp_path / "home") as client:
        for number, text in PRINTED:
            scene = Scene(runs[number].scene, client.url)
            said, _ = await client.run(runs[number], scene)
            expected = text(scene).replace("{}", scene.names["7001"])
            assert (said.stdout + said.stderr).startswith(expected), number


def test_a_missing_client_is_a_failure_that_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OFFICIAL_CLIENT_VENV", str(tmp_path))

    with pytest.raises(AssertionError, match="make official-client"):
        environment_dir()

    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "vastai").touch()
    with pytest.raises(AssertionError, match=r"instead of vastai 1\.9\.1"):
        environment_dir()
