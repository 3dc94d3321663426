"""`vastctl doctor`: everything a run needs, checked before money is spent. Changes nothing."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import trio

from vastd.clock_checks import clock_check
from vastd.core import lease
from vastd.core.instants import plural, shown
from vastd.core.money import from_usd, show
from vastd.errors import AuthRejected, ProviderError, VastdError
from vastd.lease_keeper import RENEWED
from vastd.service_checks import Service, service_checks
from vastd.shell import Shell
from vastd_protocol.methods.doctor import CheckView, DoctorView

ASK_LIMIT_S: Final = 30.0  # guess: a user waits for this
LOW_CREDIT: Final = from_usd(5.0)  # guess: a few hours of one card
LOW_DISK_BYTES: Final = 1_000_000_000  # guess: room for results and logs
TOOLS: Final = (("ssh", "openssh-client"), ("rsync", "rsync"))


async def examine(
    shell: Shell,
    *,
    key_origin: Callable[[], str | None],
    identity: Callable[[], Path],
    config_error: Callable[[], str | None],
    simulated: bool,
    managed: bool,
) -> DoctorView:
    """Return all checks; blockers keep a run from succeeding, warnings may cost something.

    `managed`: systemd started this daemon and watches it.
    """
    checks = [
        await _account(shell, key_origin(), simulated=simulated),
        await _inventory(shell),
        _ssh_key(identity),
        *(_tool(name, package) for name, package in TOOLS),
        _leases(shell),
        _disk(shell.state_dir),
        _store(shell),
        clock_check(shell.clock),
        _config(config_error()),
        _private(shell.state_dir),
        *service_checks(Service.of_this_user(), managed=managed, simulated=simulated),
    ]
    return DoctorView(
        checks=checks,
        blockers=sum(1 for check in checks if check.level == "blocker"),
        warnings=sum(1 for check in checks if check.level == "warning"),
    )


def _check(name: str, level: str, text: str, fix: str | None = None) -> CheckView:
    return CheckView(id=name, level=level, text=text, fix=fix or None)


def _leases(shell: Shell) -> CheckView:
    """Whether every machine that works would end itself should vastd be gone (DESIGN D8)."""
    now = shell.wall_clock()
    works = [r for r in shell.ledger.live() if r.phase in RENEWED]
    bare = [r for r in works if not lease.armed(r, now)]
    if bare:
        names = ", ".join(r.name for r in bare)
        text = f"no lease holds on {names}: should vastd end, nothing ends it"
        return _check("leases", "warning", text, f"`vastctl lease {bare[0].name}` tells why")
    if not works:
        return _check("leases", "ok", "no machine works, so none needs a lease")
    last = max(r.lease_until for r in works if r.lease_until is not None)
    text = (
        f"{plural(len(works), 'machine')} armed; without vastd the last one ends by {shown(last)}"
    )
    return _check("leases", "ok", text)


async def _account(shell: Shell, origin: str | None, *, simulated: bool) -> CheckView:
    where = f" (key from {origin})" if origin else ""
    try:
        with trio.fail_after(ASK_LIMIT_S):
            account = await shell.provider.get_account()
    except AuthRejected as exc:
        fix = exc.hint or "set VAST_API_KEY, or write the key to ~/.config/vastai/vast_api_key"
        return _check("vast", "blocker", f"Vast does not accept the key{where}: {exc}", fix)
    except (ProviderError, trio.TooSlowError) as exc:
        return _check("vast", "blocker", f"Vast cannot be asked: {exc}", _way(simulated=simulated))
    if account.credit is None:
        return _check("vast", "warning", f"the key works{where}; the credit could not be read")
    text = f"the key works{where}; credit {show(account.credit)}"
    if account.credit <= 0:
        return _check("vast", "blocker", text, "add credit at Vast: nothing can be rented")
    if account.credit < LOW_CREDIT:
        return _check("vast", "warning", text, "add credit: at zero every machine is stopped")
    return _check("vast", "ok", text)


def _way(*, simulated: bool) -> str:
    if simulated:
        return "the simulated Vast has ended (simulator/service.log says why): restart vastd"
    return "check the network"


async def _inventory(shell: Shell) -> CheckView:
    await trio.lowlevel.checkpoint()
    inventory = shell.observed.world.inventory
    if inventory.error is not None or inventory.as_of is None:
        why = inventory.error or "no listing yet"
        return _check(
            "inventory",
            "blocker",
            f"what exists at Vast is not known: {why}",
            "see the check of Vast above; it is listed again by itself",
        )
    orphans = len(inventory.orphans)
    text = f"{len(inventory.foreign)} foreign instances (never touched), {orphans} orphans"
    if orphans:
        return _check("inventory", "warning", text, "`vastctl ls` and Vast's console show them")
    return _check("inventory", "ok", text)


def _ssh_key(identity: Callable[[], Path]) -> CheckView:
    try:
        path = identity()
    except VastdError as exc:
        return _check("ssh_key", "blocker", str(exc), exc.hint)
    return _check("ssh_key", "ok", f"SSH uses {path}")


def _tool(name: str, package: str) -> CheckView:
    found = shutil.which(name)
    if found:
        return _check(name, "ok", f"{name} is {found}")
    return _check(
        name, "warning", f"{name} is missing here: a slower way is used", f"install {package}"
    )


def _disk(state_dir: Path) -> CheckView:
    try:
        free = shutil.disk_usage(state_dir).free
    except OSError as exc:
        return _gone("disk", state_dir, exc)
    text = f"{free / 1e9:.1f} GB free at {state_dir}"
    if free < LOW_DISK_BYTES:
        return _check("disk", "warning", text, "free some space: logs and results come here")
    return _check("disk", "ok", text)


def _store(shell: Shell) -> CheckView:
    if why := shell.locked():
        return _check(
            "store", "blocker", f"renting is locked: {why}",
            "check `vastctl ls`, then `vastctl daemon acknowledge`",
        )  # fmt: skip
    if shell.ledger.write_error is not None:
        return _check(
            "store", "blocker", f"the store cannot be written: {shell.ledger.write_error}",
            "free some space or make the directory writable",
        )  # fmt: skip
    return _check("store", "ok", "the store is whole and writable")


def _config(error: str | None) -> CheckView:
    if error is None:
        return _check("config", "ok", "the configuration can be read")
    return _check(
        "config", "blocker", f"the configuration on disk cannot be used: {error}; what vastd read "
        "before is in force, and the next start fails", "correct the file, then `vastctl doctor`",
    )  # fmt: skip


def _gone(name: str, state_dir: Path, exc: OSError) -> CheckView:
    return _check(
        name, "blocker", f"the state directory {state_dir} cannot be looked at: {exc.strerror}",
        "put it back if you have it; end the machines (`vastctl ls`), and start vastd again",
    )  # fmt: skip


def _private(state_dir: Path) -> CheckView:
    try:
        info = state_dir.stat()
    except OSError as exc:
        return _gone("privacy", state_dir, exc)
    if info.st_mode & 0o077 or info.st_uid != os.getuid():
        return _check(
            "privacy", "blocker", f"others may enter {state_dir}", f"chmod 700 {state_dir}"
        )
    return _check("privacy", "ok", f"{state_dir} is yours alone")
