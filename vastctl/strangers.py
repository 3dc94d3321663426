"""What the account holds beside the machines of this vastd, as people read it."""

from collections.abc import Sequence
from typing import Final

from vastctl import words
from vastctl.screen import printable
from vastctl.table import table
from vastd_protocol.methods.reconcile import StrangerView

# By `StrangerView.whose`.
WHOSE: Final = {
    "orphan": "orphan: our label, no rental",
    "other_vastd": "another vastd's",
    "foreign": "not of any vastd",
    "released": "released by us",
}


def lines_of(strangers: Sequence[StrangerView], now: float) -> list[str]:
    """Return a table of instances with whose they are and what they cost; empty for none."""
    if not strangers:
        return []
    rows = [
        (
            str(one.instance_id),
            WHOSE.get(one.whose or "", one.whose or words.UNKNOWN)
            + (f" ({one.owner})" if one.whose == "other_vastd" else ""),
            words.gpu(one.gpu_name, one.num_gpus),
            one.status or words.UNKNOWN,
            words.rate(one.dph_usd),
            words.age(one.started_at, now),
            printable(one.label) if one.label else words.UNKNOWN,
        )
        for one in strangers
    ]
    header = ("INSTANCE", "WHOSE", "GPU", "STATUS", "PRICE", "AGE", "LABEL")
    return table(header, rows, right=("PRICE", "AGE"))
