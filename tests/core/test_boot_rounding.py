"""A boot that began at a crooked instant: rounding is no longer boot, and no reason to crash."""

from support.builders import T0, a_rental, a_watch
from vastd.core.boot_watchdogs import boot_overdue
from vastd.core.rental import Phase


def test_no_instant_of_the_beginning_breaks_the_watchdog() -> None:
    for part in range(1, 2000):
        began = T0 + part * 0.0137
        alarm = boot_overdue(a_watch(a_rental(Phase.BOOTING, phase_since=began)))

        assert alarm is not None
        assert "longer because" not in alarm.action.why
