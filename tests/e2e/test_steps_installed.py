"""The steps one by one with the installed programs: up, set-up, exec, down; the record out and in."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.installed import Installed, installed
from support.tiny_wheel import WHEEL, a_wheel

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def vast() -> Iterator[Installed]:
    with installed() as made:
        made.start()
        a_wheel(made.project / WHEEL)
        yield made


@pytest.mark.req("CLI-03")
def test_a_machine_is_had_set_up_used_and_ended(vast: Installed, tmp_path: Path) -> None:
    (vast.project / "requirements.txt").write_text(f"./{WHEEL}\n")
    shown = vast.vastctl("provision", "--hours", "1", "--gpu-ram", "24", "--budget", "2")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.count("  vastctl rent ") >= 1
    assert vast.live() == 0

    up = vast.vastctl("up", "box", "--gpu-ram", "24", "--budget", "2")
    assert (up.returncode, up.stdout) == (0, "box\n"), up.stderr
    again = vast.json("up")
    assert (again["name"], again["phase"], vast.live()) == ("box", "ready", 1)

    # The daemon dies while the set-up is on its way: nobody has to begin again.
    begun = vast.json("setup", "--detach")
    vast.wait_for("sync_began")
    vast.kill()
    vast.start()
    waited = vast.vastctl("job", "wait", begun["job"]["job_id"])
    assert waited.returncode == 0, waited.stderr + vast.log()[-2000:]
    done = vast.json("rpc", "setup.get", json.dumps({"setup": begun["job"]["job_id"]}))
    assert done["ok"] is True
    assert [(c["name"], c["ok"]) for c in done["checks"]] == [
        ("python", True), ("pip 1 of 1", True), ("nvidia-smi", True), ("set up", True),
    ]  # fmt: skip

    said = vast.vastctl(
        "exec", "box", "--", "python -c 'import tinyland; print(tinyland.GREETING)'"
    )
    assert said.stdout == "hello from the set-up\n", said.stderr
    story = vast.vastctl("explain", "box").stdout
    assert "set-up asked: pip install -r requirements.txt" in story
    assert "succeeded: python 3" in story

    (vast.project / "requirements.txt").write_text("./missing-1.0-py3-none-any.whl\n")
    failed = vast.vastctl("setup", "--limit", "1m")
    assert failed.returncode == 10, failed.stderr
    assert "pip 1 of 1 failed: exit code 1" in failed.stderr
    assert vast.json("ls")["rentals"][0]["phase"] == "ready"

    down = vast.vastctl("down", "-y")
    assert down.returncode == 0, down.stderr
    assert "nothing was brought home" in down.stderr
    assert "it cost $0.0" in down.stderr
    assert vast.live() == 0


@pytest.mark.req("CLI-14")
def test_the_record_goes_out_and_into_another_state_directory(
    vast: Installed, tmp_path: Path
) -> None:
    out = tmp_path / "history.json"
    counts = vast.json("export", "--output", str(out))
    document = json.loads(out.read_bytes())
    assert (counts["rentals"], counts["jobs"]) == (1, 2)
    assert document["events"][-1]["kind"] == "found_absent"
    assert vast.vastctl("export", "--format", "csv").stdout.count("\n") == 2

    with installed() as other:
        other.start()
        looked = other.vastctl("import", str(out))
        assert "nothing was changed; `-y` takes 1 ended machine" in looked.stderr
        kept = other.vastctl("import", str(out), "-y")
        assert kept.returncode == 0, kept.stderr
        repeated = other.json("import", str(out), "-y")
        assert [v["verdict"] for v in repeated["verdicts"]] == ["imported"]
        assert other.json("ls", "--all")["rentals"] == []
        after = json.loads(other.vastctl("export").stdout)
        (one,) = after["imported"]
        assert one["record"]["cost_usd"] == document["rentals"][0]["cost_usd"]
        assert one["source"] == str(out)
