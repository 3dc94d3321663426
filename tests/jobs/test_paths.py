"""Which paths may be written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vastd.errors import InvalidRequest, UnsafePath
from vastd.jobs.paths import check_destination, check_job_id, check_output, check_remote_name


@pytest.mark.req("SYN-05")
@pytest.mark.parametrize(
    "path",
    ["/", "//", "///", "/.", "/root", "/root/", "//root", "/root/.", "/root/../root", "/root/x/..",
     "/workspace/..", "/workspace/../root", "/a/../../root", "/etc", "/etc/ssh", "/usr", "/bin/x",
     "/proc/1", "/dev/shm/../null", "/root/.ssh", "/home/u/.ssh/x", "", ".", "data", "~", "~/x",
     "/tmp", "/work\nspace", "/a\0b", "/x/\x1b[2J"],
)  # fmt: skip
def test_a_destination_that_breaks_the_machine_is_refused_however_it_is_written(path: str) -> None:
    with pytest.raises(UnsafePath):
        check_destination(path)


@pytest.mark.parametrize(
    ("path", "normal"),
    [("/workspace", "/workspace"), ("/workspace//data/", "/workspace/data"), ("/root/data", "/root/data"),
     ("//workspace/a/../b", "/workspace/b"), ("/workspace/\u00fc", "/workspace/\u00fc"), ("/library", "/library")],
)  # fmt: skip
def test_a_directory_of_ones_own_is_returned_in_normal_form(path: str, normal: str) -> None:
    assert check_destination(path) == normal


@given(st.lists(st.sampled_from(["..", ".", "", "root", "a", "etc"]), max_size=6))
def test_no_spelling_reaches_root_or_its_login(parts: list[str]) -> None:
    try:
        normal = check_destination("/" + "/".join(parts))
    except UnsafePath:
        return
    assert normal not in ("/", "/root")
    assert ".." not in normal.split("/")
    assert not normal.startswith(("//", "/etc"))


@pytest.mark.parametrize(
    "name", [b"/etc/x", b"../x", b"a/../../x", b"", b".", b"./", b"a\0b", b"a/.."]
)
def test_a_name_from_a_machine_that_climbs_is_refused(name: bytes) -> None:
    with pytest.raises(UnsafePath):
        check_remote_name(name)


def test_a_name_from_a_machine_is_brought_to_normal_form() -> None:
    assert check_remote_name(b"./results//a\n/.b") == b"results/a\n/.b"


@pytest.mark.parametrize("output", ["", "/", "/abs", "..", "a/../..", "~/x", "a\0"])
def test_an_output_lies_in_the_project(output: str) -> None:
    with pytest.raises(UnsafePath):
        check_output(output)


@pytest.mark.parametrize("job_id", ["", "..", "a/b", "a b", "-x", "a.b", "x" * 65, "j\n", "$(id)"])
def test_a_job_id_is_a_plain_word(job_id: str) -> None:
    with pytest.raises(InvalidRequest):
        check_job_id(job_id)

    assert check_job_id("j-12_A") == "j-12_A"
