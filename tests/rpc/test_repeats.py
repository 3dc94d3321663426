"""Every method that changes something, and why repeating it after a kill before its answer was stored
changes nothing more (CONTRACT 3). A new method needs a row here."""

from enum import Enum

from vastd_protocol.methods import every


class Repeat(Enum):
    """What makes a repeat harmless."""

    TOGETHER = "change and answer are one transaction (`Context.commit`)"
    RECORD = "the record it makes carries the request_id: the answer is made of it again"
    SAME = "doing it twice leads to the same state and answer"
    AGAIN = "it is done again, and that is told: what ran on a machine is not known after a kill"


REPEATS = {
    "budget.set": Repeat.SAME,
    "config.set": Repeat.SAME,
    "daemon.stop": Repeat.SAME,
    "exec.run": Repeat.AGAIN,
    "file.pull": Repeat.SAME,
    "file.push": Repeat.SAME,
    "host.block": Repeat.TOGETHER,
    "host.unblock": Repeat.TOGETHER,
    "job.cancel": Repeat.TOGETHER,
    "job.retry": Repeat.RECORD,
    "job.submit": Repeat.RECORD,
    "policy.set": Repeat.TOGETHER,
    "lease.renew": Repeat.TOGETHER,
    "rental.adopt": Repeat.TOGETHER,
    "rental.release": Repeat.TOGETHER,
    "reconcile.run": Repeat.SAME,
    "record.import": Repeat.SAME,
    "rental.collect": Repeat.SAME,
    "rental.create": Repeat.RECORD,
    "rental.destroy": Repeat.TOGETHER,
    "rental.start": Repeat.TOGETHER,
    "rental.stop": Repeat.TOGETHER,
    "setup.run": Repeat.RECORD,
}


def test_every_change_has_a_reason_why_its_repeat_is_harmless() -> None:
    assert sorted(REPEATS) == sorted(method.name for method in every() if method.mutates)
