"""The script Vast runs at every start of a container: its guard, our key, the tools a job needs.

Rules
1. The guard comes first: whatever fails behind it, the bill has an end (DESIGN D8).
2. It only *adds*: an image that has everything loses nothing, and one without `apt-get` works too.
"""

from typing import Final

from vastd.errors import BadSpec

GUARD_MAX_CHARS: Final = 1500  # of Vast's 4,096: a long RSA key and the rest fit behind it
ONSTART_MAX_CHARS: Final = 4096  # VAST_API 3.1: "args+onstart about 4 KB"; other pages say 16

# Order matters: the guard, then access, then what may take minutes. The login tmux breaks non-interactive
# SSH (CASES 68), so its marker comes before anybody can log in.
_SCRIPT: Final = """\
#!/bin/sh
umask 077
export HOME=${{HOME:-/root}}
mkdir -p ~/.vastd && cat >~/.vastd/guard_core.sh <<'VASTD'
{guard}
VASTD
$(command -v setsid) sh ~/.vastd/guard_core.sh {lease_s} </dev/null >/dev/null 2>&1 &
mkdir -p /root/.ssh && touch /root/.no_auto_tmux
grep -qxF '{key}' /root/.ssh/authorized_keys 2>/dev/null || echo '{key}' >>/root/.ssh/authorized_keys
chmod 700 /root/.ssh; chmod 600 /root/.ssh/authorized_keys
umask 022
mkdir -p /workspace/project /workspace/logs
missing=
for tool in rsync tmux git screen; do
  command -v "$tool" >/dev/null 2>&1 || missing="$missing $tool"
done
if [ -n "$missing" ] && command -v apt-get >/dev/null 2>&1; then
  (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $missing) \\
    >/var/log/vastd-onstart.log 2>&1 &
fi
"""


def onstart(public_key: str, guard: str, lease_s: float) -> str:
    """Return the script that starts the guard (`guard`: its core, as written for people) with a
    first lease of `lease_s`, and authorises `public_key` (one OpenSSH line).

    Raises:
        BadSpec: the key could break out of the script, or the script is too long for Vast.
    """
    key = public_key.strip()
    if "'" in key or "\n" in key:
        raise BadSpec(
            "the public SSH key holds a quote or a line break", hint="use another ssh_key"
        )
    packed = pack(guard)
    assert len(packed) <= GUARD_MAX_CHARS
    script = _SCRIPT.format(key=key, guard=packed, lease_s=round(lease_s))
    if len(script) > ONSTART_MAX_CHARS:
        raise BadSpec(
            f"onstart has {len(script)} characters, Vast takes {ONSTART_MAX_CHARS}",
            hint="use a shorter ssh_key (ed25519)",
        )
    return script


def pack(script: str) -> str:
    """Return a script without what only people need: comments and indentation."""
    lines = (line.strip() for line in script.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("#"))
