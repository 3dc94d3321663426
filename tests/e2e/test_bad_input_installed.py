"""Bad input to the installed programs: a message with the remedy, the right code, nothing rented."""

import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.installed import LIMIT_S, Installed, installed

pytestmark = pytest.mark.e2e

RUN = ("run", "-y", "--hours", "1", "--gpu-ram", "24", "--budget", "2")


@pytest.fixture(scope="module")
def shared() -> Iterator[Installed]:
    with installed() as made:
        made.start()
        yield made


@pytest.fixture
def vast(shared: Installed) -> Iterator[Installed]:
    """The daemon all share. No test of this module may make it rent, or meet a bug of it."""
    yield shared
    assert shared.creates() == []
    assert "Traceback" not in shared.log()


def assert_refused(
    vast: Installed, code: int, text: str, *words: str, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command that must end with `code` and say `text` on stderr, and nothing on stdout."""
    done = vast.vastctl(*words, cwd=cwd)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert text in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr) < 12_000  # a message, not an echo of the input
    return done


# -- what argparse sees


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("frobnicate",), "there is no command 'frobnicate'"),
        (("runn",), "did you mean `run`"),
        (("--jsn", "ls"), "did you mean `--json`"),
        (("ls", "--al"), "did you mean `--all`"),
        (("run", "--hurs", "1", "--", "true"), "did you mean `--hours`"),
        (("job", "shw", "x"), "did you mean `show`"),
        (("--timeout", "nan", "ls"), "no positive number"),
    ],
)
def test_a_word_nobody_knows_names_the_one_meant(
    vast: Installed, words: tuple[str, ...], text: str
) -> None:
    assert_refused(vast, 2, text, *words)


@pytest.mark.parametrize("duration", ["5", "5x", "1h30", "nan", "0s", "99999999999d", "1e3s", ""])
def test_a_malformed_duration_is_refused(vast: Installed, duration: str) -> None:
    assert_refused(vast, 2, "--max-runtime", *RUN, "--max-runtime", duration, "--", "true")


@pytest.mark.parametrize("number", ["-1", "nan", "inf", "1e309", "0", "1e18", "", "1,5"])
def test_a_number_that_cannot_be_meant_is_refused(vast: Installed, number: str) -> None:
    for option in ("--hours", "--gpu-ram", "--budget", "--disk", "--max-price", "--num-gpus"):
        assert_refused(vast, 2, option, *RUN, f"{option}={number}", "--", "true")


@pytest.mark.parametrize("image", ["my image:latest", "", "a\nb", "a;rm -rf /", "x" * 5000])
def test_an_image_name_with_spaces_is_refused(vast: Installed, image: str) -> None:
    assert_refused(vast, 2, "is no image", *RUN, "--image", image, "--", "true")


def test_a_run_without_command_is_refused(vast: Installed) -> None:
    assert_refused(vast, 2, "behind `--`", *RUN)
    assert_refused(vast, 2, "no command", *RUN, "--", "")


@pytest.mark.parametrize("said", ["A B=x", "1A=x", "=x", "NOT_SET_ANYWHERE"])
def test_a_malformed_variable_is_refused(vast: Installed, said: str) -> None:
    assert_refused(vast, 2, "--env", *RUN, "--env", said, "--", "true")


def test_spending_needs_a_yes_or_a_budget_without_a_terminal(vast: Installed) -> None:
    assert_refused(vast, 2, "`--budget USD`", "run", "--hours", "1", "--", "true")
    assert_refused(vast, 2, "`--budget USD`", "rent", "30000001")


# -- what only the daemon can judge


@pytest.mark.parametrize("offer", ["1", "999999999999"])
def test_an_offer_that_never_was_is_no_offer_that_fits(vast: Installed, offer: str) -> None:
    assert_refused(vast, 9, "vastctl offers", *RUN, "--offer", offer, "--", "true")
    assert_refused(vast, 9, "vastctl offers", "rent", "-y", offer)


@pytest.mark.parametrize("output", ["/", "..", "../x", "/root", "/root/../root", "a/../../b", "."])
def test_an_output_outside_the_project_is_refused_before_renting(
    vast: Installed, output: str
) -> None:
    assert_refused(vast, 2, "does not lie in the project", *RUN, "--output", output, "--", "true")


def test_a_project_of_3_gb_is_refused_before_renting(vast: Installed) -> None:
    project = vast.root / "huge"
    project.mkdir(exist_ok=True)
    with (project / "corpus.txt").open("wb") as sparse:
        sparse.truncate(3_000_000_001)

    done = assert_refused(vast, 2, "the limit is 3 GB", *RUN, "--", "true", cwd=project)

    assert "corpus.txt" in done.stderr
    assert ".vastdignore" in done.stderr


def test_a_home_directory_is_not_sent(vast: Installed) -> None:
    for directory in (vast.home, Path("/")):
        assert_refused(vast, 2, "all of your home", *RUN, "--", "true", cwd=directory)


def test_names_nobody_bears_are_not_found(vast: Installed) -> None:
    for words in (
        ("show", "nosuch"), ("explain", "nosuch"), ("ssh", "nosuch"), ("collect", "nosuch"),
        ("pull", "nosuch", "a"), ("push", "nosuch", "/etc/hostname"), ("logs", "nosuch"),
        ("job", "show", "nosuch"), ("destroy", "-y", "nosuch"), (*RUN, "--on", "nosuch", "--", "x"),
    ):  # fmt: skip
        assert_refused(vast, 5, "'nosuch'", *words)
    for words in (("exec", "nosuch", "--", "ls"), ("job", "wait", "nosuch")):
        assert_refused(vast, 125, "'nosuch'", *words)


def test_a_query_is_refused_at_the_place_that_cannot_be_read(vast: Installed) -> None:
    for query in ("gpu_ram>=abc", "foo=1", "gpu_ram >=", "num_gpus=nan", "gpu_ram>=24 )"):
        assert_refused(vast, 2, "at position", "offers", query)


def test_json_is_one_document_also_when_it_is_an_error(vast: Installed) -> None:
    for code, words in (
        (2, ("--json", "frobnicate")),
        (2, ("--json", *RUN, "--hours", "nan", "--", "true")),
        (5, ("--json", "show", "nosuch")),
        (9, ("--json", *RUN, "--offer", "1", "--", "true")),
        (0, ("--json", "ls")),
        (0, ("--json", "jobs")),
        (0, ("--json", "doctor")),
        (0, ("--json", "version")),
    ):
        done = vast.vastctl(*words)
        assert done.returncode == code, (words, done.stderr)
        # An error takes the document's form too, on stderr: stdout holds results only.
        document = done.stderr if code else done.stdout
        assert document.count("\n") == 1, words
        assert ("error" in json.loads(document)) is (code != 0)
        assert code == 0 or done.stdout == ""


# -- keys


@pytest.mark.parametrize("fault", ["auth_404", "auth_401"])
def test_a_key_vast_refuses_is_exit_4(vast: Installed, fault: str) -> None:
    order = {"calls": [{"point": "provider.*", "kind": fault, "times": None}]}
    vast.simulator("/sim/faults", json.dumps(order).encode())
    try:
        vast.vastctl("rpc", "reconcile.run")  # its listing meets the fault
        assert_refused(vast, 4, "`vastctl doctor`", *RUN, "--", "true")
        assert_refused(vast, 4, "`vastctl doctor`", "offers")
        assert vast.vastctl("doctor").returncode == 4
        assert vast.json("ls")["inventory"]["state"] != "fresh"
    finally:
        vast.simulator("/sim/faults", method="DELETE")
    vast.vastctl("rpc", "reconcile.run")
    assert vast.json("ls")["inventory"]["state"] == "fresh"


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (None, "no vast api key found"),
        ("a" * 64, "Invalid user key"),
        ("my key with spaces", "not one line of printable characters"),
    ],
)
def test_a_daemon_without_a_good_key_serves_and_rents_nothing(
    vast: Installed, key: str | None, text: str
) -> None:
    info = json.loads((vast.state / "simulator" / "service.json").read_bytes())
    with installed() as other:
        other.env["VAST_URL"] = info["url"]
        if key is not None:
            other.env["VAST_API_KEY"] = key
        other.start(simulate=False)

        done = assert_refused(other, 4, text, *RUN, "--", "true")

        assert "`vastctl doctor`" in done.stderr
        assert other.vastctl("ls").returncode == 0
        assert other.vastctl("doctor").returncode == 4
        assert "Traceback" not in other.log()


# -- the wire


def connection(vast: Installed) -> socket.socket:
    """Return a fresh connection to the daemon."""
    made = socket.socket(socket.AF_UNIX)
    made.settimeout(LIMIT_S)
    made.connect(str(vast.socket))
    return made


def asked(vast: Installed, method: str, params: object) -> dict[str, Any]:
    """Return the answer to one line."""
    message = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
    with connection(vast) as line, line.makefile("rb") as answers:
        line.sendall(json.dumps(message).encode() + b"\n")
        for raw in answers:
            if (answer := json.loads(raw)).get("id", 7) in (7, None) and "method" not in answer:
                assert isinstance(answer, dict)
                return answer
    raise AssertionError(f"{method} was not answered")


GARBAGE: tuple[object, ...] = (
    [1, 2], "x", 5, {"x": 1}, {"rental": 5}, {"rental": ""}, {"rental": "\0"}, {"job": "\0"},
    {"rental": "x" * 100_000}, {"rental": "nosuch", "command": "ls", "timeout_s": 1e300},
    {"project": "relative", "command": ["x"]}, {"project": "/tmp\0x", "command": ["x"]},
    {"project": "/tmp", "command": []}, {"project": "/tmp", "command": ["x\0"]},
    {"project": "/tmp", "command": ["\ud800"]}, {"project": "/tmp", "command": ["x"], "env": {"": "x"}},
    {"project": "/tmp", "command": ["x"], "outputs": ["\0"]},
    {"project": "/tmp", "command": ["x"], "needs": {"hours": -1}},
    {"project": "/tmp", "command": ["x"], "needs": {"offer_id": 7}, "policy": {"budget_usd": 1e308}},
    {"project": "/tmp", "command": ["x"], "needs": {"offer_id": 7}, "policy": {"max_runtime_s": 1e308}},
    {"offer_id": 2**70}, {"needs": {"offer_id": -1}}, {"needs": {"num_gpus": 2**40}},
    {"query": "\0"}, {"limit": -1}, {"limit": 2**70}, {"after": -1}, {"after": 2**70},
    {"key": "timing.settle_s", "value": -1}, {"key": "timing", "value": 1}, {"timeout_s": -1},
    {"subscription_id": -4},
    {"rental": "nosuch", "sources": ["/etc/host\0name"], "destination": "/"},
    {"job": "nosuch", "offset": 2**70, "search": "("}, {"protocol_version": 99},
)  # fmt: skip


def test_garbage_parameters_never_meet_a_bug(vast: Installed) -> None:
    document = asked(vast, "rpc.discover", None)["result"]
    methods = {method["name"] for method in document["methods"]} - {"daemon.stop"}
    held = {"job.wait"}  # without a job it waits for the newest; here there is none

    assert len(methods | held) > 25
    for method in sorted(methods):
        for params in GARBAGE:
            code = asked(vast, method, params).get("error", {}).get("code")
            assert code != -32603, (method, params)


def test_a_frame_split_at_every_byte_is_answered(vast: Installed) -> None:
    body = b'{"jsonrpc":"2.0","id":1,"method":"rental.list"}'
    frame = b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    for cut in range(1, len(frame)):
        with connection(vast) as split, split.makefile("rb") as answers:
            split.sendall(frame[:cut])
            split.sendall(frame[cut:])
            length = int(answers.readline().split(b":")[1])
            assert answers.readline() == b"\r\n"
            assert json.loads(answers.read(length))["result"]["rentals"] == []


def test_netcat_with_one_line_is_answered(vast: Installed) -> None:
    done = subprocess.run(
        ["nc", "-U", "-q", "5", str(vast.socket)], capture_output=True, timeout=LIMIT_S, check=False,
        input=b'{"jsonrpc":"2.0","id":1,"method":"rental.list"}\n',
    )  # fmt: skip

    assert json.loads(done.stdout)["result"]["rentals"] == []


@pytest.mark.parametrize(
    "noise",
    [
        b"\x00\xff garbage\r\n\r\n",
        b"Content-Length: 99999999999\r\n\r\n",
        b"Content-Length: -5\r\n\r\n",
        b"Content-Length: 50\r\n\r\nhalf",
        b"{" * 100_000 + b"\n",
        b"not json\n",
    ],
)
def test_noise_on_one_connection_disturbs_no_other(vast: Installed, noise: bytes) -> None:
    body = b'{"jsonrpc":"2.0","id":1,"method":"daemon.status"}\n'
    with connection(vast) as good, good.makefile("rb") as answers:
        for _ in range(3):
            with connection(vast) as bad:
                bad.sendall(noise)
                good.sendall(body)
                assert json.loads(answers.readline())["id"] == 1


def test_an_oversized_frame_closes_that_connection_only(vast: Installed) -> None:
    with connection(vast) as bad:
        bad.sendall(b"Content-Length: %d\r\n\r\n" % (16 * 1024 * 1024 + 1))
        while bad.recv(65_536):
            pass  # whatever it says, it ends

    assert vast.vastctl("ls").returncode == 0


def test_a_raw_call_tells_what_is_wrong(vast: Installed) -> None:
    assert_refused(vast, 2, "nosuch.method", "rpc", "nosuch.method")
    assert_refused(vast, 2, "'rentl'", "rpc", "rental.get", '{"rentl": "x"}')
    assert_refused(vast, 2, "JSON", "rpc", "rental.get", "{not json")
