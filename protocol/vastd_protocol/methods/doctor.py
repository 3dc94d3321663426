"""`doctor.run`: checks before money is spent."""

from msgspec import field

from vastd_protocol.method import Method, Nothing, View


class CheckView(View, frozen=True, kw_only=True):
    """One check. `level` is `ok`, `warning` or `blocker`; `fix` is what to run or do."""

    id: str
    level: str
    text: str
    fix: str | None = None


class DoctorView(View, frozen=True, kw_only=True):
    """All checks, in the order they were made."""

    checks: list[CheckView] = field(default_factory=list)
    blockers: int = 0
    warnings: int = 0


RUN = Method("doctor.run", Nothing, DoctorView, "Check key, credit, SSH key, tools, disk, socket")

METHODS = (RUN,)
