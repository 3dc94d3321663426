"""The start script: lets our key in, whatever the image, and cannot be broken out of."""

import subprocess

import pytest

from vastd.core.onstart import ONSTART_MAX_CHARS, onstart
from vastd.errors import BadSpec

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKey me@home"


def test_the_script_authorises_the_key_once_and_is_valid_shell() -> None:
    script = onstart(f" {KEY}\n")

    assert script.startswith("#!/bin/sh\n")
    assert script.count(KEY) == 2  # looked for, and added only when it is not there
    checked = subprocess.run(["/bin/sh", "-n"], input=script, text=True, check=False)
    assert checked.returncode == 0


def test_access_and_the_tmux_marker_come_before_anything_slow() -> None:
    script = onstart(KEY)

    assert script.index(".no_auto_tmux") < script.index("authorized_keys") < script.index("apt-get")


@pytest.mark.parametrize("key", ["ssh-ed25519 A' ; rm -rf / #", "ssh-ed25519 A\nssh-rsa B"])
def test_a_key_that_could_break_out_is_refused(key: str) -> None:
    with pytest.raises(BadSpec, match="quote or a line break"):
        onstart(key)


def test_a_script_too_long_for_vast_is_refused_with_the_remedy() -> None:
    with pytest.raises(BadSpec, match=str(ONSTART_MAX_CHARS)) as caught:
        onstart("ssh-rsa " + "A" * 4000)

    assert "ed25519" in caught.value.hint
