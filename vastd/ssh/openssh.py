"""The command line for the OpenSSH client that checks and uses exactly what we do."""

import math
from pathlib import Path
from typing import Final

from vastd.jobs.port import Endpoint
from vastd.ssh.known_hosts import host_key_alias

CONNECT_TIMEOUT_S: Final = 15  # REQUIREMENTS SSH-03
KEEPALIVE_INTERVAL_S: Final = 15  # REQUIREMENTS section 8; CASES 71: 15 s, three times
KEEPALIVE_COUNT: Final = 3

_FIXED: Final = (
    # The user's own configuration, agent and forwardings must not leak into our sessions.
    ("IdentitiesOnly", "yes"),
    ("IdentityAgent", "none"),
    ("BatchMode", "yes"),
    ("PreferredAuthentications", "publickey"),
    ("ForwardAgent", "no"),
    ("ClearAllForwardings", "yes"),
    ("ControlMaster", "no"),
    ("ControlPath", "none"),
    ("UpdateHostKeys", "no"),
    ("StrictHostKeyChecking", "yes"),
    ("GlobalKnownHostsFile", "/dev/null"),
    ("ServerAliveInterval", str(KEEPALIVE_INTERVAL_S)),
    ("ServerAliveCountMax", str(KEEPALIVE_COUNT)),
    ("LogLevel", "ERROR"),
)


def ssh_argv(
    endpoint: Endpoint,
    instance_id: int,
    identity: Path,
    known_hosts: Path,
    connect_timeout_s: float = CONNECT_TIMEOUT_S,
) -> list[str]:
    """Return `ssh` with every option set, without host and command.

    Needs the host key on record (`StrictHostKeyChecking=yes`): connect with the dialer first.
    """
    options = [
        *_FIXED,
        # ssh(1) reads whole seconds here, and 0 would mean no limit.
        ("ConnectTimeout", str(max(1, math.ceil(connect_timeout_s)))),
        ("IdentityFile", _config_path(identity)),
        ("UserKnownHostsFile", _config_path(known_hosts)),
        ("HostKeyAlias", host_key_alias(instance_id)),
    ]
    argv = ["ssh", "-F", "none"]
    for name, value in options:
        argv += ["-o", f"{name}={value}"]
    return [*argv, "-p", str(endpoint.port), "-l", endpoint.user]


def rsync_shell(argv: list[str]) -> str:
    """Return `argv` as the one string rsync's `-e` splits again.

    rsync knows single quotes with a doubled quote for itself, and no backslashes.
    """
    return " ".join("'" + word.replace("'", "''") + "'" for word in argv)


def _config_path(path: Path) -> str:
    # ssh expands % in these values and splits them at blanks unless quoted.
    return '"' + str(path).replace("%", "%%") + '"'
