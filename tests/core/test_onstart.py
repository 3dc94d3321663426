"""The start script: lets our key in, whatever the image, and cannot be broken out of."""

import subprocess

import pytest

from vastd.core.onstart import GUARD_MAX_CHARS, ONSTART_MAX_CHARS, onstart, pack
from vastd.errors import BadSpec
from vastd.jobs.guard import core_text

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKey me@home"
# The longest that is usual: 4,096 bits.
LONG_KEY = "ssh-rsa " + "A" * 716 + " somebody@a-machine-with-a-long-name.example.com"


def scripted(key: str) -> str:
    return onstart(key, core_text(), 3600.0)


def test_the_script_authorises_the_key_once_and_is_valid_shell() -> None:
    script = scripted(f" {KEY}\n")

    assert script.startswith("#!/bin/sh\n")
    assert script.count(KEY) == 2  # looked for, and added only when it is not there
    checked = subprocess.run(["/bin/sh", "-n"], input=script, text=True, check=False)
    assert checked.returncode == 0


def test_access_and_the_tmux_marker_come_before_anything_slow() -> None:
    script = scripted(KEY)

    assert script.index(".no_auto_tmux") < script.index("authorized_keys") < script.index("apt-get")


@pytest.mark.parametrize("key", ["ssh-ed25519 A' ; rm -rf / #", "ssh-ed25519 A\nssh-rsa B"])
def test_a_key_that_could_break_out_is_refused(key: str) -> None:
    with pytest.raises(BadSpec, match="quote or a line break"):
        scripted(key)


def test_a_script_too_long_for_vast_is_refused_with_the_remedy() -> None:
    with pytest.raises(BadSpec, match=str(ONSTART_MAX_CHARS)) as caught:
        scripted("ssh-rsa " + "A" * 4000)

    assert "ed25519" in caught.value.hint


def test_the_guard_is_started_before_anything_else_with_its_first_lease() -> None:
    script = scripted(KEY)

    started = script.index("guard_core.sh 3600 </dev/null >/dev/null 2>&1 &")
    assert started < script.index(".ssh") < script.index("apt-get")
    assert len(pack(core_text())) <= GUARD_MAX_CHARS
    assert len(scripted(LONG_KEY)) <= ONSTART_MAX_CHARS


def test_packing_a_script_changes_nothing_of_what_it_does() -> None:
    written = "# why\nif true; then\n  echo one # kept\n\n  echo two\nfi\n"

    packed = pack(written)

    assert packed == "if true; then\necho one # kept\necho two\nfi"
