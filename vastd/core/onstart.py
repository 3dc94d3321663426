"""The script Vast runs in a new container: lets us in, and brings the tools a job needs.

It only *adds*: an image that has everything loses nothing, and one without `apt-get` works too.
"""

from typing import Final

from vastd.errors import BadSpec

ONSTART_MAX_CHARS: Final = 4096  # VAST_API 3.1: "args+onstart about 4 KB"; other pages say 16

# Order matters: access first, then what may take minutes. The login tmux breaks non-interactive
# SSH (CASES 68), so its marker comes before anybody can log in.
_SCRIPT: Final = """\
#!/bin/sh
umask 077
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


def onstart(public_key: str) -> str:
    """Return the script that authorises `public_key` (one OpenSSH line).

    Raises:
        BadSpec: the key could break out of the script, or the script is too long for Vast.
    """
    key = public_key.strip()
    if "'" in key or "\n" in key:
        raise BadSpec(
            "the public SSH key holds a quote or a line break", hint="use another ssh_key"
        )
    script = _SCRIPT.format(key=key)
    if len(script) > ONSTART_MAX_CHARS:
        raise BadSpec(
            f"onstart has {len(script)} characters, Vast takes {ONSTART_MAX_CHARS}",
            hint="use a shorter ssh_key (ed25519)",
        )
    return script
