"""The life of a rental as one table: which event is legal in which phase, and what it leads to.

An outcome that lost a race (`BecameReady` after `EndDecided`) is a row here, not a crash. An
event without a row is a bug: `lifecycle.evolve` raises and nothing changes.

`python -m vastd.core.transitions --dot` prints the table as a graph.
"""

import sys
from collections.abc import Mapping
from typing import Final

from vastd.core import events as ev
from vastd.core.rental import Phase

_Row = Mapping[type[ev.RentalEvent], Phase]

# Facts that may come in any phase with an instance and do not move the rental.
_NOTES: Final = (
    ev.BillingChanged,
    ev.Warned,
    ev.Quarantined,
    ev.KeyAttached,
    ev.PolicyChanged,
    ev.BidChanged,
    ev.LeftOver,
    ev.LeaseRenewed,
    ev.LeaseAsked,
    # A late word of a request that was under way when something else was decided.
    ev.StopTried,
    ev.StartTried,
)


def _row(phase: Phase, moves: Mapping[type[ev.RentalEvent], Phase]) -> _Row:
    return {**dict.fromkeys(_NOTES, phase), **moves}


TRANSITIONS: Final[Mapping[Phase, _Row]] = {
    Phase.PLANNED: _row(
        Phase.PLANNED,
        {
            ev.CreateSent: Phase.CREATING,
            # Nothing was sent, so nothing can exist: the end needs no proof.
            ev.EndDecided: Phase.GONE,
            ev.CreateRefused: Phase.GONE,
        },
    ),
    Phase.CREATING: _row(
        Phase.CREATING,
        {
            ev.CreateConfirmed: Phase.BOOTING,
            ev.InstanceFound: Phase.BOOTING,
            ev.CreateUnresolved: Phase.CREATING,
            ev.CreateRefused: Phase.GONE,
            ev.EndDecided: Phase.DESTROYING,
            ev.FoundAbsent: Phase.GONE,
        },
    ),
    Phase.BOOTING: _row(
        Phase.BOOTING,
        {
            # A listing may show the instance before the answer to its create arrives.
            ev.CreateConfirmed: Phase.BOOTING,
            ev.InstanceFound: Phase.BOOTING,
            ev.InstanceRunning: Phase.VERIFYING,
            ev.EndDecided: Phase.BOOTING,
            ev.DestroyDecided: Phase.DESTROYING,
            ev.Released: Phase.GONE,
            ev.FoundAbsent: Phase.GONE,
        },
    ),
    Phase.VERIFYING: _row(
        Phase.VERIFYING,
        {
            ev.CreateConfirmed: Phase.VERIFYING,
            ev.BecameReady: Phase.READY,
            ev.EndDecided: Phase.VERIFYING,
            ev.DestroyDecided: Phase.DESTROYING,
            ev.Released: Phase.GONE,
            ev.FoundAbsent: Phase.GONE,
        },
    ),
    Phase.READY: _row(
        Phase.READY,
        {
            ev.BecameReady: Phase.READY,
            ev.JobBegan: Phase.BUSY,
            ev.CollectVerified: Phase.READY,
            ev.CollectFailed: Phase.READY,
            ev.InstanceStopped: Phase.STOPPED,
            ev.StopAsked: Phase.READY,
            ev.EndDecided: Phase.READY,
            ev.DestroyDecided: Phase.DESTROYING,
            ev.Released: Phase.GONE,
            ev.FoundAbsent: Phase.GONE,
        },
    ),
    Phase.BUSY: _row(
        Phase.BUSY,
        {
            ev.JobLeft: Phase.COLLECTING,
            ev.InstanceStopped: Phase.STOPPED,
            ev.StopAsked: Phase.BUSY,
            ev.EndDecided: Phase.BUSY,
            ev.DestroyDecided: Phase.DESTROYING,
            ev.Released: Phase.GONE,
            ev.FoundAbsent: Phase.GONE,
        },
    ),
    Phase.COLLECTING: _row(
        Phase.COLLECTING,
        {
            ev.CollectVerified: Phase.READY,
            ev.CollectFailed: Phase.READY,
            ev.InstanceStopped: Phase.STOPPED,
            ev.StopAsked: Phase.COLLECTING,
            ev.EndDecided: Phase.COLLECTING,
            ev.DestroyDecided: Phase.DESTROYING,
            ev.Released: Phase.GONE,
            ev.FoundAbsent: Phase.GONE,
        },
    ),
    Phase.STOPPED: _row(
        Phase.STOPPED,
        {
            # Its job ended with the container: READY collects what is on the disk.
            ev.InstanceResumed: Phase.READY,
            ev.StartAsked: Phase.STOPPED,
            ev.JobWentOn: Phase.STOPPED,
            ev.JobLeft: Phase.STOPPED,
            ev.CollectVerified: Phase.STOPPED,
            ev.CollectFailed: Phase.STOPPED,
            ev.StopAsked: Phase.STOPPED,
            ev.EndDecided: Phase.STOPPED,
            ev.DestroyDecided: Phase.DESTROYING,
            ev.Released: Phase.GONE,
            ev.FoundAbsent: Phase.GONE,
        },
    ),
    Phase.DESTROYING: _row(
        Phase.DESTROYING,
        {
            # A create whose answer was late: we must still learn the id to end it.
            ev.CreateConfirmed: Phase.DESTROYING,
            ev.InstanceFound: Phase.DESTROYING,
            ev.CreateUnresolved: Phase.DESTROYING,
            ev.CreateRefused: Phase.GONE,
            ev.BecameReady: Phase.DESTROYING,
            ev.InstanceStopped: Phase.DESTROYING,
            ev.JobLeft: Phase.DESTROYING,
            ev.CollectVerified: Phase.DESTROYING,
            ev.CollectFailed: Phase.DESTROYING,
            ev.EndDecided: Phase.DESTROYING,
            ev.DestroyTried: Phase.DESTROYING,
            ev.FoundAbsent: Phase.GONE,
        },
    ),
    Phase.GONE: {
        ev.Resurfaced: Phase.DESTROYING,
        # A late word of an effect that was under way while the proof came in.
        ev.DestroyTried: Phase.GONE,
        ev.StopTried: Phase.GONE,
        ev.StartTried: Phase.GONE,
        ev.LeaseRenewed: Phase.GONE,
        ev.CollectFailed: Phase.GONE,
        ev.Warned: Phase.GONE,
        ev.Quarantined: Phase.GONE,
    },
}


def dot() -> str:
    """Return the table as a Graphviz graph, moves only."""
    lines = ["digraph rental {", "  rankdir=LR;"]
    for phase, row in TRANSITIONS.items():
        for event, target in row.items():
            if target is not phase:
                lines.append(f'  {phase} -> {target} [label="{event.__struct_config__.tag}"];')
    return "\n".join([*lines, "}"])


if __name__ == "__main__":
    sys.stdout.write(dot() + "\n" if "--dot" in sys.argv else __doc__ or "")
