"""Names of faults as one types them: `--fault create:lose_answer`, `--fault outbid`."""

from typing import Final

from msgspec import Struct

from vastd.errors import InvalidRequest
from vastd.simulator.faults import (
    BOOT_SAYS,
    Fault,
    FaultKind,
    MachineFault,
    MachineFaultKind,
    Point,
)

LOGIN_TMUX: Final = "commands_in_tmux"
BOOT: Final = "boot_"  # in front of a name of `BOOT_SAYS`
ANY_CALL: Final = "provider.*"
# Where a kind strikes when only the kind is named.
USUAL_POINT: Final = {
    FaultKind.LOSE_REQUEST: Point.CREATE,
    FaultKind.LOSE_ANSWER: Point.CREATE,
    FaultKind.HTTP_500_AFTER: Point.CREATE,
    FaultKind.OFFER_GONE: Point.CREATE,
    FaultKind.NO_CREDIT: Point.CREATE,
    FaultKind.SPEND_RATE: Point.CREATE,
    FaultKind.FLICKER: Point.LIST,
    FaultKind.TRUNCATED_PAGE: Point.LIST,
    FaultKind.NULL: Point.LIST,
    FaultKind.EMPTY_BODY: Point.LIST,
    FaultKind.HTTP_410: Point.LIST,
    FaultKind.LEAK: Point.SEARCH,
}


class NamedFault(Struct, frozen=True, kw_only=True):
    """What a name stands for: one of the three."""

    call: Fault | None = None
    machine: MachineFault | None = None  # befalls the next instance
    login_tmux: bool = False  # commands without a terminal never run (SSH-10)


def parse_fault(name: str) -> NamedFault:
    """Return the fault of a name: a machine fault, `POINT:KIND[xTIMES]`, or a kind alone.

    Raises:
        InvalidRequest: there is no such fault; the message lists them.
    """
    if name == LOGIN_TMUX:
        return NamedFault(login_tmux=True)
    if name in {*MachineFaultKind}:
        return NamedFault(machine=MachineFault(kind=MachineFaultKind(name)))
    if name.removeprefix(BOOT) in BOOT_SAYS and name.startswith(BOOT):
        said = BOOT_SAYS[name.removeprefix(BOOT)]
        return NamedFault(machine=MachineFault(kind=MachineFaultKind.BOOT_ERROR, message=said))
    point, _, rest = name.rpartition(":")
    word, times = rest, 1
    head, _, count = rest.rpartition("x")
    if head in {*FaultKind} and count.isdigit():
        word, times = head, int(count)
    if word not in {*FaultKind} or point not in {*Point, ANY_CALL, ""}:
        raise InvalidRequest(
            f"no fault is called {name!r}",
            hint=f"one of {', '.join(fault_names())}; or POINT:KIND, as in create:lose_answer",
        )
    kind = FaultKind(word)
    where = point or USUAL_POINT.get(kind, ANY_CALL)
    return NamedFault(call=Fault(point=where, kind=kind, times=times))


def fault_names() -> list[str]:
    """Return every short name, sorted."""
    boots = {f"{BOOT}{name}" for name in BOOT_SAYS}
    return sorted({LOGIN_TMUX, *boots, *map(str, MachineFaultKind), *map(str, FaultKind)})
