"""Whether vastd stays up: run by systemd or by hand, enabled at boot, kept after a logout.

Rules
1. Where no systemd runs, or the simulated Vast is used, there is nothing to warn of.
2. Only files are looked at: they are what systemd itself goes by, and no bus can hang.
"""

import os
import pwd
from pathlib import Path
from typing import Final

from msgspec import Struct

from vastd_protocol.methods.doctor import CheckView

UNIT: Final = "vastd.service"
# sd_booted(3): systemd is the init of this machine exactly if this directory exists.
BOOTED_DIR: Final = Path("/run/systemd/system")
LINGER_DIR: Final = Path("/var/lib/systemd/linger")  # one empty file per user (systemd-logind)
# systemd.unit(5): where units of all users' managers come from packages and administrators.
SHARED_UNIT_DIRS: Final = (
    "/etc/systemd/user",
    "/usr/local/lib/systemd/user",
    "/usr/lib/systemd/user",
)


class Service(Struct, frozen=True, kw_only=True):
    """What systemd's files say about one user's vastd."""

    booted: bool  # systemd runs here
    user: str
    has_manager: bool  # a `systemd --user` of this user runs
    installed: bool  # a unit file is there
    enabled: bool  # it starts with the user's manager
    lingers: bool  # that manager starts at boot and outlives the last session

    @classmethod
    def of_this_user(cls) -> "Service":
        """Look at the files."""
        user = _user()
        config = os.environ.get("XDG_CONFIG_HOME", "")
        own = Path(config if config.startswith("/") else os.path.expanduser("~/.config"))
        units = [own / "systemd" / "user", *map(Path, SHARED_UNIT_DIRS)]
        runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
        return cls(
            booted=BOOTED_DIR.is_dir(),
            user=user,
            has_manager=Path(runtime, "systemd", "private").exists(),
            installed=any((place / UNIT).exists() for place in units),
            enabled=any(os.path.lexists(place / "default.target.wants" / UNIT) for place in units),
            lingers=(LINGER_DIR / user).exists(),
        )


def service_checks(service: Service, *, managed: bool, simulated: bool) -> list[CheckView]:
    """Return what keeps vastd, and with it every watchdog, from running when it is needed."""
    if managed:
        return [_enabled(service), _linger(service)]
    if not service.booted or simulated:
        return [_ok("service", "vastd runs as a process of its own, without systemd")]
    if not service.has_manager:
        text = "vastd runs as a process of its own; you have no systemd user manager here"
        return [_ok("service", text)]
    text = "vastd was started by hand: after a crash or a reboot nobody starts it, and machines bill on"
    fix = "vastctl daemon stop, then vastctl daemon install"
    if service.installed:
        text += f"; {UNIT} is installed"
        fix = "vastctl daemon stop, then vastctl daemon start"
    return [CheckView(id="service", level="warning", text=text, fix=fix)]


def _enabled(service: Service) -> CheckView:
    if service.enabled:
        return _ok("service", f"systemd runs and watches vastd ({UNIT}, enabled)")
    return CheckView(
        id="service",
        level="warning",
        text=f"systemd runs and watches vastd, but {UNIT} is not enabled: it does not start at boot",
        fix=f"systemctl --user enable {UNIT}",
    )


def _linger(service: Service) -> CheckView:
    if service.lingers:
        return _ok("linger", f"systemd keeps vastd running after {service.user} logs out")
    return CheckView(
        id="linger",
        level="warning",
        text=f"linger is off for {service.user}: systemd ends vastd with your last session and "
        "starts it at your next login; in between nobody watches, collects or destroys",
        fix=f"loginctl enable-linger {service.user}",
    )


def _ok(name: str, text: str) -> CheckView:
    return CheckView(id=name, level="ok", text=text)


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
