"""What a project may say of itself, and what a cloned repository may not."""

import os
import time
from pathlib import Path

import pytest

from vastd.config import project as projects
from vastd.config.lines import line_of
from vastd.config.load import Origin, parse
from vastd.config.project import read_project
from vastd.configuration import ConfigurationHolder
from vastd.defaults import fill_needs, fill_policy, limit_facts
from vastd.errors import BudgetExceeded, ConfigError, InvalidRequest
from vastd.rpc.handlers.asked import needs_of, policy_of
from vastd_protocol.methods.rental import PolicyParams
from vastd_protocol.methods.task import Needs

FULL = """\
[defaults]
image = "lab/train:3"
disk_gb = 120
max_runtime_s = 7200
idle_s = 60
profile = "arf"
[needs]
gpu_ram_gb = 24
num_gpus = 2
hours = 3
spot = true
[job]
outputs = ["results/", "*.csv"]
heartbeat = "hb.json"
heartbeat_interval_s = 30
checkpoint = "ckpt/last.pt"
[budget]
per_job_usd = 3
max_dph_usd = 1.5
"""


def holder(root: Path, file: str = "") -> ConfigurationHolder:
    config = parse(file, Path("/etc/x/config.toml"), {"VASTD_STATE_DIR": "/s"})
    return ConfigurationHolder(config, {}).of_project(str(root))


def refused(root: Path) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        read_project(root)
    return caught.value


@pytest.fixture(params=["vastd.toml", "pyproject.toml"])
def full(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    text = FULL
    if request.param == "pyproject.toml":
        text = '[project]\nname = "x"\n' + text.replace("[", "[tool.vastd.", 5)
        text = text.replace("outputs = [tool.vastd.", "outputs = [").replace(
            "\n[budget]", "\n[tool.vastd.budget]"
        )
    (tmp_path / request.param).write_text(text)
    return tmp_path


def test_the_project_stands_in_for_flags_that_are_absent(full: Path) -> None:
    mine = holder(full)

    needs = needs_of(Needs(), mine)
    policy = policy_of(PolicyParams(), mine)

    assert (needs.image, needs.disk_gb, needs.profile) == ("lab/train:3", 120.0, "arf")
    assert (needs.gpu_ram_gb, needs.num_gpus, needs.hours, needs.spot) == (24.0, 2, 3.0, True)
    assert needs.max_dph_usd == 1.5
    assert (policy.max_runtime_s, policy.idle_warn_s, policy.idle_s) == (7200.0, 60.0, None)
    assert (policy.heartbeat_path, policy.heartbeat_interval_s) == ("hb.json", 30.0)
    assert policy.checkpoint_path == "ckpt/last.pt"
    assert policy.budget == 3_000_000
    assert mine.outputs() == ["results/", "*.csv"]


def test_a_flag_beats_the_project_and_the_project_beats_the_file(full: Path) -> None:
    mine = holder(full, "[defaults]\nmax_runtime_s = 9000\n[needs]\nhours = 9\n")
    said = Needs(image="mine:1", hours=1, gpu_ram_gb=8, on_demand=True, profile="aris")

    needs = needs_of(said, mine)
    policy = policy_of(PolicyParams(max_runtime_s=5, heartbeat_path="h"), mine)

    assert (needs.image, needs.hours, needs.gpu_ram_gb) == ("mine:1", 1, 8)
    assert (needs.spot, needs.profile, needs.num_gpus) == (False, "aris", 2)
    assert (policy.max_runtime_s, policy.heartbeat_path) == (5, "h")
    assert mine.settings.defaults.max_runtime_s == 7200.0


def test_who_names_an_offer_is_not_held_to_what_the_project_usually_wants(full: Path) -> None:
    needs, _ = fill_needs(Needs(offer_id=7), holder(full))

    assert (needs.gpu_ram_gb, needs.num_gpus, needs.hours, needs.spot) == (None, None, 3.0, True)


def test_every_number_of_a_plan_names_the_line_it_comes_from(tmp_path: Path) -> None:
    (tmp_path / "vastd.toml").write_text(FULL)
    mine = holder(tmp_path)

    _, said_by = fill_needs(Needs(hours=1), mine)
    limits = limit_facts(mine, 2.0)

    assert said_by["gpu_ram_gb"] == "project (vastd.toml:8)"
    assert "hours" not in said_by
    assert limits["defaults.max_runtime_s"].source == "project (vastd.toml:4)"
    assert limits["job.heartbeat"].value == "hb.json"
    assert limits["budget.per_job_usd"].source == "you said so (--budget)"


def test_origin_and_line_of_a_projects_setting_are_shown(tmp_path: Path) -> None:
    (tmp_path / "vastd.toml").write_text(FULL)
    config = parse("[defaults]\ndisk_gb = 9\n", Path("/etc/c.toml"), {"VASTD_STATE_DIR": "/s"})
    all_of_us = ConfigurationHolder(config, {})

    here = {s.key: s for s in all_of_us.view(None, str(tmp_path)).settings}
    elsewhere = {s.key: s for s in all_of_us.view(None).settings}

    disk = here["defaults.disk_gb"]
    assert (disk.value, disk.origin, disk.where) == (120.0, "project", "vastd.toml:3")
    assert elsewhere["defaults.disk_gb"].origin == "file"
    assert all_of_us.view("defaults", str(tmp_path)).project_path == str(tmp_path / "vastd.toml")
    assert here["needs.gpu_name"].origin == "default"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[vast]\nurl = "https://evil.example"', "vast.url: it would decide where your key"),
        ('[vast]\napi_key_file = "x"', "vast.api_key_file"),
        ('[defaults]\nssh_key = "x"', "defaults.ssh_key"),
        ("[defaults]\nssh_config = true", "defaults.ssh_config"),
        ("[websocket]\nport = 1", "websocket.port"),
        ("[rates]\nlist = 0", "rates.list"),
        ("[timing]\ngrace_s = 1", "timing.grace_s"),
        ("[budget]\nper_day_usd = 900", "budget.per_day_usd"),
        ('[job]\nenv = ["AWS_SECRET_ACCESS_KEY"]', "job.env: it would send variables"),
        ('[job]\ninclude = [".env"]', "job.include: it would send files"),
    ],
)
def test_a_cloned_repository_cannot_redirect_the_key_or_lift_a_guard(
    tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "vastd.toml").write_text("# hello\n" + text)

    error = refused(tmp_path)

    assert str(error).startswith(f"{tmp_path}/vastd.toml:3: a project may not set ")
    assert said in str(error)


@pytest.mark.parametrize(
    "output",
    [".git", ".git/hooks", "*", "**", "*/hooks", "?git", "[.]git/hooks", "a/../.git", "/x"],
)
def test_a_project_cannot_have_files_written_that_run_by_themselves(
    tmp_path: Path, output: str
) -> None:
    (tmp_path / "vastd.toml").write_text(f'[job]\noutputs = ["results", "{output}"]')

    assert f"{tmp_path}/vastd.toml:2: job.outputs" in str(refused(tmp_path))


def test_a_project_lowers_caps_and_never_raises_them(tmp_path: Path) -> None:
    (tmp_path / "vastd.toml").write_text("[budget]\nper_job_usd = 900\nmax_dph_usd = 0.5\n")

    mine = holder(tmp_path)

    assert (mine.settings.budget.per_job_usd, mine.settings.budget.max_dph_usd) == (10.0, 0.5)
    assert [w.partition(" is over")[0] for w in mine.warnings] == [
        "vastd.toml:2: budget.per_job_usd = 900"
    ]
    assert mine.config.origin("budget.per_job_usd") is Origin.DEFAULT


@pytest.mark.parametrize("key", sorted(projects.CAPS))
@pytest.mark.parametrize("share", [0.5, 1.0, 1.001, 20.0])
def test_what_bounds_money_or_ends_a_machine_is_only_lowered_by_a_project(
    tmp_path: Path, key: str, share: float
) -> None:
    own = holder(tmp_path).config.get(key)
    assert isinstance(own, float)
    table, name = key.split(".")
    (tmp_path / "vastd.toml").write_text(f"[{table}]\n{name} = {own * share}\n")

    mine = holder(tmp_path)

    assert mine.config.get(key) == min(own, own * share)
    assert [key in warning for warning in mine.warnings] == ([True] if share > 1 else [])
    assert mine.by_project(key) == (share <= 1)


def test_every_limit_in_a_projects_hands_is_one_that_only_falls() -> None:
    """Whoever allows a project another money or time limit must decide how far it may go."""
    limits = {k for k in projects.ALLOWED if k.endswith(("_usd", "_s")) and "heartbeat" not in k}

    assert limits == projects.CAPS


def test_a_project_cannot_order_a_huge_disk(tmp_path: Path) -> None:
    (tmp_path / "vastd.toml").write_text("[defaults]\ndisk_gb = 1001\n")

    error = refused(tmp_path)

    assert f"{tmp_path}/vastd.toml:2: defaults.disk_gb: a project may ask for at most" in str(error)
    assert "--disk" in error.hint


BROKEN = "x = [\n"


@pytest.mark.parametrize(
    "text",
    [
        "[tool.vastd.needs]\nhours = 1\n", '[tool."vastd".needs]\nhours = 1\n',
        "[ tool . 'vastd' . needs ]\nhours = 1\n", "tool = {vastd = {needs = {hours = 1}}}\n",
        "tool.vastd.needs.hours = 1\n", "[tool]\nvastd.needs = {hours = 1}\n",
        '[tool]\n"vastd" = {needs = {hours = 1}}\n',
    ],
)  # fmt: skip
def test_our_table_is_found_however_it_is_written_and_missed_by_nobody_when_it_is_broken(
    tmp_path: Path, text: str
) -> None:
    file = tmp_path / "pyproject.toml"
    file.write_text(text)
    whole = read_project(tmp_path)
    file.write_text(text + BROKEN)
    broken = str(refused(tmp_path))

    assert whole.values == {"needs.hours": 1.0}
    assert broken.startswith(f"{file}:")
    assert "not valid TOML" in broken


@pytest.mark.parametrize("text", ["[Tool.vastd]\n", "[tool.VastD.needs]\nhours = 1\n", "[vastd]\n"])
def test_a_table_that_is_nearly_ours_is_not_passed_over(tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_text("\n" + text)

    error = refused(tmp_path)

    assert f"{tmp_path}/pyproject.toml:2: " in str(error)
    assert "write it [tool.vastd]" in error.hint


def test_a_link_to_nothing_is_not_no_file(tmp_path: Path) -> None:
    (tmp_path / "vastd.toml").symlink_to("conf/v.toml")

    assert "it is a link to 'conf/v.toml', and there is nothing" in str(refused(tmp_path))

    (tmp_path / "vastd.toml").unlink()
    (tmp_path / "pyproject.toml").symlink_to("gone")  # not ours alone
    assert read_project(tmp_path).path is None


@pytest.mark.parametrize(
    ("by_project", "hint"),
    [
        (True, "your project's vastd.toml:{line} caps this: change it there"),
        (False, "raise the cap with `vastctl budget {key}=N`"),
    ],
)
def test_a_refusal_names_the_cap_that_refuses(tmp_path: Path, by_project: bool, hint: str) -> None:
    (tmp_path / "vastd.toml").write_text(
        "[budget]\nper_job_usd = 2\nmax_dph_usd = 0.5\n" if by_project else ""
    )
    mine = holder(tmp_path)
    for line, key, ask in (
        (2, "per_job_usd", lambda: policy_of(PolicyParams(budget_usd=11), mine)),
        (3, "max_dph_usd", lambda: needs_of(Needs(max_dph_usd=9), mine)),
        (3, "max_dph_usd", lambda: needs_of(Needs(spot=True, bid_usd_h=9), mine)),
    ):
        with pytest.raises(BudgetExceeded) as caught:
            ask()
        assert caught.value.hint.startswith(hint.format(line=line, key=key))


def test_two_files_that_both_speak_are_an_error_and_a_silent_pyproject_is_not(
    tmp_path: Path,
) -> None:
    (tmp_path / "vastd.toml").write_text("[needs]\nhours = 1\n")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\n')
    assert read_project(tmp_path).values == {"needs.hours": 1.0}

    (tmp_path / "pyproject.toml").write_text("[tool.vastd.needs]\nhours = 1\n")

    assert "both vastd.toml and pyproject.toml" in str(refused(tmp_path))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[needs\n", ":1: not valid TOML"),
        ("[needs]\nhours = soon\n", ":2: not valid TOML"),
        ("x = " + "[" * 5000, ":1: not valid TOML"),
        ("[needs]\n\nhours = -1\n", ":3: needs.hours: expected a number above 0"),
        ("[needs]\nhuors = 1\n", ":2: unknown key 'needs.huors'"),
        ("hours = 1\n", ":1: 'hours' is not in a table"),
        ("[needs]\nhours = nan\n", ":2: needs.hours"),
        ('[defaults]\nprofile = "arif"\n', ":2: defaults.profile: expected one of 'aris', 'arf'"),
        ('[needs]\ngpu_name = "x\\u001b[2J"\n', ":2: needs.gpu_name"),
    ],
)
def test_a_broken_file_names_file_and_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "vastd.toml").write_text(text)

    error = refused(tmp_path)

    assert f"{tmp_path}/vastd.toml{said}" in str(error)
    assert "\x1b" not in str(error)


def test_a_broken_pyproject_that_says_nothing_to_us_is_not_our_business(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project\n")

    assert read_project(tmp_path).path is None


def test_only_a_plain_file_of_the_project_is_read(tmp_path: Path) -> None:
    root = tmp_path / "p"
    root.mkdir()
    secret = tmp_path / "key"
    secret.write_text("sk-secret-key\n")
    file = root / "vastd.toml"

    file.symlink_to(secret)
    linked = str(refused(root))
    file.unlink()
    os.mkfifo(file)
    piped = str(refused(root))  # and does not wait for a writer
    file.unlink()
    file.mkdir()
    directory = str(refused(root))
    file.rmdir()
    file.symlink_to(file)
    circle = str(refused(root))
    file.unlink()
    file.write_bytes(b"#" * (projects.MAX_FILE_BYTES + 1))
    large = str(refused(root))
    file.write_bytes(b"x = '\xff'")
    binary = str(refused(root))

    assert "a link out of the project" in linked
    assert "secret" not in linked
    assert "not a file" in piped
    assert "not a file" in directory
    assert "cannot be read" in circle
    assert "more than" in large
    assert "vastd.toml:1: not UTF-8" in binary


def test_a_link_within_the_project_is_read(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "v.toml").write_text("[needs]\nhours = 2\n")
    (tmp_path / "vastd.toml").symlink_to("conf/v.toml")

    assert read_project(tmp_path).values == {"needs.hours": 2.0}


def test_a_file_of_another_user_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vastd.toml").write_text("[needs]\nhours = 2\n")
    if os.geteuid() == 0:
        os.chown(tmp_path / "vastd.toml", 4711, -1)
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)

    assert "belongs to another user" in str(refused(tmp_path))


@pytest.mark.parametrize("line", ["1" * 60_000, "[" + " " * 60_000, "a." * 30_000, '"' * 60_000])
def test_finding_a_line_takes_no_longer_for_a_hostile_text(line: str) -> None:
    began = time.process_time()

    line_of(f"x = [\n{line}\n]\n", ("needs", "hours"))

    assert time.process_time() - began < 1.0  # it was minutes; now it is milliseconds


def test_no_project_and_odd_directories_mean_the_users_own_settings(tmp_path: Path) -> None:
    all_of_us = holder(tmp_path)

    for odd in (None, "relative", "/no/such", "/x\x00y", str(tmp_path / "vastd.toml")):
        assert all_of_us.of_project(odd).settings == all_of_us.settings


@pytest.mark.parametrize(
    ("mark", "profile", "source"),
    [
        ("project/budget.json", "arf", "project (it has project/budget.json)"),
        (".aris/compute/vast.md", "aris", "project (it has .aris)"),
        ("train.py", "aris", "default"),
    ],
)
@pytest.mark.req("CRE-03")
def test_the_workflow_is_recognised_by_its_files_if_nobody_names_it(
    tmp_path: Path, mark: str, profile: str, source: str
) -> None:
    (tmp_path / mark).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / mark).touch()

    mine = holder(tmp_path)

    assert (mine.profile().profile, mine.profile().source) == (profile, source)
    assert ("2.6.0" in mine.image()) == (profile == "arf")
    assert "2.6.0" in mine.image("arf")
    assert needs_of(Needs(), mine).profile == profile
    named = holder(tmp_path, '[defaults]\nprofile = "aris"\n')
    assert named.profile().source == "configuration (defaults.profile)"
    with pytest.raises(InvalidRequest, match="no profile 'x'"):
        mine.profile("x")


def test_a_heartbeat_of_the_command_does_not_take_the_projects_interval(full: Path) -> None:
    said = fill_policy(PolicyParams(heartbeat_path="mine"), holder(full))

    assert said.heartbeat_interval_s is None


def test_a_setting_that_waits_for_the_next_start_says_so(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    mine = ConfigurationHolder(parse("", path, {}), {})

    (changed,) = mine.set({"vast.url": "http://localhost:1"})
    (at_once,) = mine.set({"timing.settle_s": 1})

    assert changed.note == "takes effect at the next start of vastd"
    assert at_once.note is None
    assert mine.waiting() == ["vast.url"]
    path.write_text("[defaults]\nssh_key = '/k'\n")
    assert set(mine.reload()) == {"vast.url", "timing.settle_s", "defaults.ssh_key"}
    assert mine.waiting() == ["defaults.ssh_key"]
    assert mine.ssh_key() is None
