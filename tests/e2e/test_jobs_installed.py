"""Jobs on one rented machine, with the installed programs: log, files, environment, ends."""

import hashlib
import json
import os
import random
import shlex
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.installed import FAST, Installed, installed

pytestmark = pytest.mark.e2e

BOX = "box"
NOISE = """\
import sys, time, random
kind = sys.argv[1]
out = sys.stdout.buffer
if kind == "fast":
    for n in range(400_000):
        out.write(b"%07d %s\\n" % (n, b"x" * 42))
elif kind == "binary":
    out.write(random.Random(1).randbytes(2_000_000) + b"\\x00\\xff\\n")
elif kind == "long":
    out.write(b"a" * 3_000_000 + b"END\\nno newline at the end")
elif kind == "bars":
    for n in range(2000):
        out.write(b"\\r%d%%" % (n // 20))
        out.flush()
    out.write(b"\\n")
elif kind == "slow":
    for n in range(40):
        out.write(b"%04d %s\\n" % (n, b"y" * 500_000))
        out.flush()
        time.sleep(0.1)
"""


@pytest.fixture(scope="module")
def vast() -> Iterator[Installed]:
    """A daemon with one machine that all jobs here share."""
    with installed() as made:
        config = Path(made.env["VASTD_CONFIG"])
        config.write_text(FAST.replace("grace_s = 5", "grace_s = 2"))
        made.start()
        rent(made, BOX)
        yield made


@pytest.fixture
def project(vast: Installed, tmp_path: Path) -> Path:
    """A project of its own."""
    directory = tmp_path / "project"
    directory.mkdir()
    return directory


def rent(vast: Installed, name: str, *options: str) -> None:
    """Rent the cheapest offer and wait until it is ready."""
    offer = vast.json("offers")["offers"][0]["offer_id"]
    done = vast.vastctl("rent", str(offer), "-y", "--name", name, "--budget", "3", *options)
    assert done.returncode == 0, done.stderr


def on_box(
    vast: Installed, project: Path, name: str, options: tuple[str, ...], *command: str
) -> subprocess.CompletedProcess[str]:
    """Run a job on the shared machine to its end."""
    return vast.vastctl(
        "run", "--on", BOX, "-y", "--name", name, *options, "--", *command, cwd=project
    )


def sh(vast: Installed, script: str) -> str:
    """Run a shell script on the shared machine with the user's own OpenSSH."""
    done = vast.vastctl("exec", BOX, "--", script)
    assert done.returncode == 0, done.stderr
    return done.stdout


def log_of(vast: Installed, job: str) -> bytes:
    """Return the log as it lies at home."""
    return Path(vast.json("job", "show", job)["log_path"]).read_bytes()


def noise(kind: str) -> bytes:
    """Return what the job of that kind prints."""
    words = [sys.executable, "-c", NOISE.replace("time.sleep(0.1)", "pass"), kind]
    return subprocess.run(words, capture_output=True, check=True).stdout


# -- how a job ends


@pytest.mark.parametrize(
    ("name", "script", "plain", "passed_on"),
    [
        ("zero", "exit 0", 0, 0),
        ("three", "exit 3", 1, 3),
        ("killed", "kill -KILL $$", 1, 137),
        ("not-found", "no-such-program-here", 1, 127),
    ],
)
@pytest.mark.req("RUN-02")
def test_the_exit_code_of_the_job_is_kept_and_passed_on_when_asked(
    vast: Installed, project: Path, name: str, script: str, plain: int, passed_on: int
) -> None:
    done = on_box(vast, project, f"exit-{name}", (), "sh", "-c", script)

    assert done.returncode == plain, done.stderr
    job = vast.json("job", "show", f"exit-{name}")
    assert job["exit_code"] == passed_on
    assert vast.vastctl("job", "wait", f"exit-{name}").returncode == passed_on
    followed = vast.vastctl("logs", f"exit-{name}", "-f", "--exit-status")
    assert followed.returncode == passed_on


@pytest.mark.req("RUN-02")
def test_a_job_killed_by_the_kernel_is_told_from_one_that_failed(
    vast: Installed, project: Path
) -> None:
    done = on_box(vast, project, "oom", ("--exit-status",), "sh", "-c", "kill -KILL $$")

    assert done.returncode == 137
    job = vast.json("job", "show", "oom")
    assert job["failure"] == "killed"
    assert "memory" in job["reason"]


def test_a_cancelled_job_saves_its_checkpoint_which_comes_home(
    vast: Installed, project: Path
) -> None:
    script = (
        "mkdir -p results; trap 'echo saved >results/checkpoint; exit 0' TERM; echo up; "
        "while :; do sleep 0.1; done"
    )
    client = vast.begin_in(
        project, "run", "--on", BOX, "-y", "--name", "saves", "--output", "results", "--", "sh",
        "-c", script,
    )  # fmt: skip
    assert client.stdout is not None
    assert client.stdout.readline() == "up\n"

    assert vast.vastctl("job", "cancel", "saves", "-y").returncode == 0
    client.communicate(timeout=60)

    assert client.returncode == 1
    job = vast.json("job", "show", "saves")
    assert (job["state"], job["collected"]) == ("cancelled", True)
    assert (project / "results/checkpoint").read_text() == "saved\n"


@pytest.mark.req("CKP-05")
def test_a_job_that_ignores_term_is_killed_after_the_grace_time(
    vast: Installed, project: Path
) -> None:
    client = vast.begin_in(
        project, "run", "--on", BOX, "-y", "--name", "deaf", "--", "sh", "-c",
        "trap '' TERM; echo up; while :; do sleep 0.1; done",
    )  # fmt: skip
    assert client.stdout is not None
    assert client.stdout.readline() == "up\n"

    vast.vastctl("job", "cancel", "deaf", "-y")
    client.communicate(timeout=60)

    job = vast.json("job", "show", "deaf")
    assert (job["state"], job["exit_code"], job["collected"]) == ("cancelled", 137, True)
    assert "deaf" not in sh(vast, "ps ax -o args | grep 'trap' | grep -v grep || true")


# -- its log


@pytest.mark.parametrize("kind", ["fast", "binary", "long", "bars"])
def test_whatever_a_job_prints_comes_home_unchanged(
    vast: Installed, project: Path, kind: str
) -> None:
    (project / "noise.py").write_text(NOISE)

    done = on_box(vast, project, f"noise-{kind}", ("--detach",), "python3", "noise.py", kind)
    assert done.returncode == 0, done.stderr
    words = [vast.program("vastctl"), "logs", f"noise-{kind}", "-f"]
    followers = [
        subprocess.Popen(words, env=vast.env, cwd=project, stdout=subprocess.PIPE) for _ in range(2)
    ]
    shown = [follower.communicate(timeout=60)[0] for follower in followers]

    wanted = noise(kind)
    assert log_of(vast, f"noise-{kind}") == wanted
    assert [len(text) for text in shown] == [len(wanted)] * 2
    assert shown == [wanted, wanted]


def test_the_last_lines_and_matching_lines_of_a_log_can_be_asked_for(
    vast: Installed, project: Path
) -> None:
    on_box(vast, project, "lines", (), "seq", "1", "30000")

    assert vast.vastctl("logs", "lines", "-n", "2").stdout == "29999\n30000\n"
    assert vast.vastctl("logs", "lines", "--search", "^2999[89]$").stdout == "29998\n29999\n"
    assert vast.vastctl("logs", "lines", "--search", "(").returncode == 2


@pytest.mark.req("FAI-10")
def test_kills_and_dropped_connections_cost_no_byte_of_a_flowing_log(
    vast: Installed, project: Path
) -> None:
    (project / "noise.py").write_text(NOISE)
    client = vast.begin_in(
        project, "run", "--on", BOX, "-y", "--name", "flow", "--", "python3", "noise.py", "slow"
    )
    assert client.stdout is not None
    client.stdout.read(1_000_000)
    instance = vast.json("show", BOX)["instance_id"]

    vast.simulator(f"/sim/drop/{instance}/", b"{}")
    client.stdout.read(3_000_000)
    client.kill()
    client.communicate()
    vast.kill()
    vast.start()
    vast.simulator("/sim/faults/", json.dumps({"network_down_s": 2}).encode())
    followed = vast.vastctl("logs", "flow", "-f")

    wanted = noise("slow").decode()
    assert followed.returncode == 0
    assert len(followed.stdout) == len(wanted)
    assert followed.stdout == wanted
    assert log_of(vast, "flow") == wanted.encode()
    assert vast.vastctl("job", "wait", "flow").returncode == 0


# -- what is sent


def tree(vast: Installed) -> set[str]:
    """Return the names of all files of the project on the machine."""
    told = sh(vast, "cd /workspace/project && find . -mindepth 1 ! -type d -print0")
    return {name.removeprefix("./") for name in told.split("\0") if name}


@pytest.mark.req("SYN-02", "SYN-08")
def test_only_what_belongs_to_the_code_is_sent(vast: Installed, project: Path) -> None:
    outside = project.parent / "outside.txt"
    outside.write_text("not ours")
    files = {
        "train.py": "1", "a b/ü ß\n.txt": "2", "-rf": "3", "--delete": "4", "sub/keep.py": "5",
        ".gitignore": "*.tmp\n/build/\n", ".vastdignore": "big.csv\n", "x.tmp": "n",
        "build/x": "n", "big.csv": "n", ".env": "SECRET=1", "id_ed25519": "n", "key.pem": "n",
        ".git/config": "n", "data/x.csv": "n", "w.ckpt": "n", "__pycache__/x.pyc": "n",
        "credentials.json": "n", ".venv/x.py": "n", "notes.txt": "-----BEGIN OPENSSH PRIVATE KEY",
    }  # fmt: skip
    for name, text in files.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    (project / "out-link").symlink_to(outside)
    (project / "in-link").symlink_to("train.py")
    (project / "empty").mkdir()

    done = on_box(vast, project, "sent", (), "sh", "-c", "test -d empty && cat -- -rf in-link")

    assert done.returncode == 0, done.stderr
    assert done.stdout == "31"
    wanted = {"train.py", "a b/ü ß\n.txt", "-rf", "--delete", "sub/keep.py", ".gitignore"}
    assert tree(vast) >= wanted | {".vastdignore", "in-link"}
    kept_home = {name for name, text in files.items() if text == "n"}
    assert not tree(vast) & (kept_home | {".env", "notes.txt", "out-link"})
    assert "secret" in done.stderr


def test_a_secret_is_sent_only_when_it_is_named(vast: Installed, project: Path) -> None:
    (project / ".env").write_text("A=1\n")

    done = on_box(vast, project, "named", ("--include", ".env"), "cat", ".env")

    assert done.stdout == "A=1\n", done.stderr


def test_a_second_run_sends_changes_and_takes_back_what_was_deleted(
    vast: Installed, project: Path
) -> None:
    (project / "code.py").write_text("print('one')\n")
    (project / "gone.py").write_text("")
    (project / "edited.py").write_text("")
    first = on_box(
        vast,
        project,
        "first",
        (),
        "sh",
        "-c",
        "python3 code.py; echo made >made; echo 1 >edited.py",
    )
    before = (project / "code.py").stat()
    (project / "code.py").write_text("print('two')\n")  # same size,
    os.utime(project / "code.py", ns=(before.st_atime_ns, before.st_mtime_ns))  # same time
    (project / "gone.py").unlink()
    (project / "edited.py").unlink()

    second = on_box(
        vast, project, "second", (), "sh", "-c", "python3 code.py; ls made edited.py gone.py"
    )

    assert first.stdout == "one\n", first.stderr
    # What the job made or changed stays; what was deleted at home is gone there.
    assert second.stdout.splitlines()[:1] == ["two"]
    assert {"made", "edited.py"} <= tree(vast)
    assert "gone.py" not in tree(vast)


def test_many_small_files_and_a_large_one_arrive(vast: Installed, project: Path) -> None:
    (project / "many").mkdir()
    for number in range(2000):
        (project / f"many/{number}.txt").write_text(str(number))
    large = random.Random(2).randbytes(1 << 20) * 150
    (project / "large.npy").write_bytes(large)

    done = on_box(
        vast, project, "many", (), "sh", "-c",
        "ls many | wc -l; sha256sum <large.npy | cut -c1-64; rm -r large.npy many",
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["2000", hashlib.sha256(large).hexdigest()]


# -- what comes home

MAKES = """\
mkdir -p results/deep/er results/none
echo same >results/same
echo new >results/differs
echo 1 >results/deep/er/x
echo 2 >'results/a b
c'
echo 3 >'results/-rf'
echo b >one.npz
ln -s /etc/hostname results/out
ln -s / results/root
ln -s same results/in
"""


@pytest.mark.req("COL-03", "COL-07")
def test_declared_outputs_come_home_and_nothing_at_home_is_lost(
    vast: Installed, project: Path
) -> None:
    (project / "results").mkdir()
    (project / "results/differs").write_text("old\n")
    (project / "results/mine").write_text("mine\n")

    done = on_box(
        vast, project, "makes", ("--output", "results", "*.npz", "*.none", "absent"), "sh", "-c",
        MAKES,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    job = vast.json("job", "show", "makes")
    assert (sorted(job["missing"]), job["collected"]) == (["*.none", "absent"], True)
    texts = {
        "results/same": "same\n", "results/differs": "new\n", "results/mine": "mine\n",
        "results/deep/er/x": "1\n", "results/a b\nc": "2\n", "results/-rf": "3\n",
        "results/in": "same\n", "one.npz": "b\n",
        f"results/differs.before-{job['job_id']}": "old\n",
    }  # fmt: skip
    assert {name: (project / name).read_text() for name in texts} == texts
    assert not (project / "results/root").exists()
    assert not any(path.is_symlink() for path in project.rglob("*"))


def test_a_file_that_grows_while_it_is_collected_costs_no_result(
    vast: Installed, project: Path
) -> None:
    script = (
        "rm -rf results; mkdir results; echo 7 >results/answer; "
        "setsid sh -c 'n=0; while [ $n -lt 100 ]; do echo $n; n=$((n+1)); sleep 0.05; done "
        ">>results/growing' >/dev/null 2>&1 & sleep 0.3"
    )

    done = on_box(vast, project, "grows", ("--output", "results"), "sh", "-c", script)

    assert done.returncode == 0, done.stderr
    assert (project / "results/answer").read_text() == "7\n"
    grown = (project / "results/growing").read_text().split()
    assert grown == [str(number) for number in range(len(grown))]
    assert grown


# -- its environment


def test_a_secret_of_the_environment_reaches_the_job_and_nobody_else(
    vast: Installed, project: Path
) -> None:
    odd = "s3cr3t-'\"$HOME `id` \\n\n#!%s end"
    (project / "show.py").write_text(
        "import glob, os, sys\n"
        "sys.stdout.write(os.environ['ODD'])\n"
        "mine = os.environ['ODD'].split('-')[0].encode()\n"
        "for name in glob.glob('/proc/[0-9]*/cmdline'):\n"
        "    try:\n"
        "        assert mine not in open(name, 'rb').read(), name\n"
        "    except OSError:\n"
        "        pass\n"
    )

    done = on_box(
        vast, project, "environ", ("--env", f"ODD={odd}", "--env", "EMPTY="), "python3", "show.py"
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout == odd
    modes = sh(vast, "stat -c %a /workspace/.vastd /workspace/.vastd/jobs/*/env")
    assert set(modes.split()) == {"700", "600"}
    told = vast.vastctl("--json", "events", "-n", "100000").stdout + vast.log()
    assert "s3cr3t" not in told
    job_log = vast.json("job", "show", "environ")["log_path"]
    for path in vast.state.rglob("*"):
        if path.is_file() and path != Path(job_log) and "simulator" not in path.parts:
            assert b"s3cr3t" not in path.read_bytes(), path
    assert stat.S_IMODE((vast.state / "vastd.db").stat().st_mode) & 0o077 == 0


# -- working by hand


def test_files_go_both_ways_and_the_printed_command_is_plain_openssh(
    vast: Installed, project: Path
) -> None:
    (project / "a b.txt").write_text("pushed\n")
    pushed = vast.vastctl("push", BOX, "a b.txt", "/workspace/in", cwd=project)
    assert pushed.returncode == 0, pushed.stderr
    printed = vast.vastctl("ssh", BOX, "--print")
    words = [*shlex.split(printed.stdout), "cat '/workspace/in/a b.txt'; exit 5"]

    plain = subprocess.run(
        words, env=vast.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    pulled = vast.vastctl("pull", BOX, "/workspace/in", "back", cwd=project)

    assert (plain.returncode, plain.stdout) == (5, "pushed\n"), plain.stderr
    assert pulled.returncode == 0, pulled.stderr
    assert [p.read_text() for p in (project / "back").rglob("a b.txt")] == ["pushed\n"]
    assert vast.vastctl("exec", BOX, "--", "exit 9").returncode == 9


@pytest.mark.req("SYN-05")
@pytest.mark.parametrize("where", ["/", "//", "/root", "/root/../root", "/workspace/../root/"])
def test_nothing_is_pushed_over_the_root_of_a_machine(
    vast: Installed, project: Path, where: str
) -> None:
    (project / "x").write_text("")

    done = vast.vastctl("push", BOX, "x", where, cwd=project)

    assert done.returncode == 6, done.stderr


# -- several at once, and the end


def test_three_runs_at_once_all_finish_and_their_costs_add_up(
    vast: Installed, project: Path
) -> None:
    names = ["par-a", "par-b", "par-c"]
    places = [project / name for name in names]
    for place in places:
        place.mkdir()
    clients = [
        vast.begin_in(
            place, "run", "-y", "--name", name, "--hours", "1", "--gpu-ram", "12", "--budget", "2",
            "--output", "results", "--", "sh", "-c",
            f"mkdir results; echo {name} >results/name; echo done",
        )
        for name, place in zip(names, places, strict=True)
    ]  # fmt: skip
    told = [client.communicate(timeout=120) for client in clients]

    assert [client.returncode for client in clients] == [0, 0, 0], told
    for name, place in zip(names, places, strict=True):
        assert (place / "results/name").read_text() == f"{name}\n"
        rental = vast.json("show", vast.json("job", "show", name)["rental_id"])
        entries = json.loads((place / "vast-instances.json").read_text())
        assert [e["status"] for e in entries] == ["destroyed"]
        phases = vast.json("explain", rental["rental_id"])["phases"]
        assert sum(p["cost_usd"] for p in phases) == pytest.approx(rental["cost_usd"], abs=2e-6)
    assert vast.live() == 1


def test_a_machine_with_an_active_job_is_destroyed_only_by_force_and_with_a_reason(
    vast: Installed, project: Path
) -> None:
    rent(vast, "doomed")
    client = vast.begin_in(
        project, "run", "--on", "doomed", "-y", "--name", "last", "--", "sh", "-c",
        "mkdir -p results; echo half >results/x; echo up; sleep 600",
    )  # fmt: skip
    assert client.stdout is not None
    assert client.stdout.readline() == "up\n"

    refused = vast.vastctl("destroy", "doomed", "-y")
    unexplained = vast.vastctl("destroy", "doomed", "-y", "--force")
    assert (refused.returncode, unexplained.returncode) == (12, 2), refused.stderr
    assert vast.json("show", "doomed")["phase"] == "busy"
    forced = vast.vastctl("destroy", "doomed", "-y", "--force", "--reason", "wrong data set")
    client.communicate(timeout=60)

    assert forced.returncode == 0, forced.stderr
    assert client.returncode == 1
    rental = vast.json("show", "doomed")
    assert (rental["phase"], rental["end_reason"]) == ("gone", "user")
    assert "wrong data set" in vast.vastctl("explain", "doomed").stdout
    assert vast.live() == 1


def test_stop_of_the_daemon_leaves_no_trace_of_the_job_on_its_signal(vast: Installed) -> None:
    assert vast.daemon is not None
    vast.daemon.send_signal(signal.SIGTERM)
    assert vast.daemon.wait(60) == 0
    vast.start()

    destroyed = vast.vastctl("destroy", BOX, "-y")

    assert destroyed.returncode == 0, destroyed.stderr
    assert vast.live() == 0
    shown = vast.json("ls", "--all")["rentals"]
    cost = sum(rental["cost_usd"] for rental in shown)
    billed = vast.simulator("/sim/status")["billed_usd"]
    assert cost == pytest.approx(billed, abs=0.002)
