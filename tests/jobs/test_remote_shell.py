"""Framed answers, and rsync's words, read without a machine."""

import pytest

from vastd.errors import (
    SshAuthRejected,
    SshClosed,
    SshHostKeyChanged,
    SshRefused,
    SshTimeout,
    TransferFailed,
)
from vastd.jobs.port import Endpoint, Route
from vastd.jobs.remote_shell import find_answer, runner_text
from vastd.jobs.rsync import RsyncLink, RsyncUnusable, explain, transferred
from vastd.ssh.port import CommandResult

HERE = Endpoint(host="2001:db8::1", port=22, route=Route.DIRECT)


def told(stdout: bytes) -> CommandResult:
    return CommandResult(exit_code=0, stdout=stdout, stderr=b"")


@pytest.mark.parametrize(
    ("stdout", "body"),
    [
        (b"\n@@vastd-begin N\nx=1\n\n@@vastd-end N 0\n", b"x=1\n"),
        (b"banner\n@@vastd-begin N\n\x00\xff\n@@vastd-end N 0\nbye\n", b"\x00\xff"),
        (b"\n@@vastd-begin N\n\n@@vastd-end N 0\n", b""),
        (b"\n@@vastd-begin N\na\n@@vastd-end N 9\nb\n@@vastd-end N 0\n", b"a\n@@vastd-end N 9\nb"),
        (b"\n@@vastd-begin N\nx\n", None),
        (b"\n@@vastd-end N 0\n", None),
        (b"\n@@vastd-begin M\nx\n@@vastd-end M 0\n", None),
        (b"no sessions\n", None),
        (b"\n@@vastd-begin N\nx\n@@vastd-end N 0", None),
    ],
)
def test_only_words_between_this_calls_own_lines_count(stdout: bytes, body: bytes | None) -> None:
    answer = find_answer(told(stdout), "N")

    assert (answer and answer.body) == body
    assert answer is None or answer.exit_code == 0


def test_the_runner_is_shipped_with_the_package() -> None:
    assert "vastd_supervise" in runner_text()
    assert "\r" not in runner_text()


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (b"\r          1,234  12%", None),
        (b"\r         32768   0%    0.00kB/s    0:00:00", 32768),
        (b"\r 1 0% x\r    6000000 100%   50.1MB/s    0:00:00 (xfr#2, to-chk=0/3)\n", 6000000),
        (b"Number of files: 3\n", None),
    ],
)
def test_the_newest_progress_line_counts(words: bytes, count: int | None) -> None:
    assert transferred(words) == count


@pytest.mark.req("SSH-09")
@pytest.mark.parametrize(
    ("code", "complaint", "kind"),
    [
        (255, "ssh: connect to host h port 1: Connection refused", SshRefused),
        (255, "ssh: connect to host h port 1: No route to host", SshRefused),
        (255, "ssh: connect to host h port 1: Connection timed out", SshTimeout),
        (30, "rsync error: timeout in data send/receive (code 30)", SshTimeout),
        (255, "root@h: Permission denied (publickey).", SshAuthRejected),
        (255, "Host key verification failed.", SshHostKeyChanged),
        (12, "rsync: connection unexpectedly closed (0 bytes received so far)", SshClosed),
        (255, "", SshClosed),
        (11, "rsync: write failed: No space left on device (28)", TransferFailed),
        (3, "rsync: change_dir failed", TransferFailed),
        (12, "bash: line 1: rsync: command not found", RsyncUnusable),
        (2, "protocol version mismatch -- is your shell clean?", RsyncUnusable),
    ],
)
def test_what_rsync_says_becomes_what_one_may_conclude(
    code: int, complaint: str, kind: type[Exception]
) -> None:
    assert type(explain(code, complaint, HERE)) is kind


def test_an_ipv6_host_is_written_in_brackets_for_rsync() -> None:
    assert RsyncLink(endpoint=HERE, ssh_argv=[]).place("/w/p/") == "[2001:db8::1]:/w/p/"
