"""`record.*`: the whole history, page by page, and records taken in from files."""

from msgspec import field

from vastd_protocol.method import Method, Mutation, Params, View
from vastd_protocol.methods.job import JobView
from vastd_protocol.methods.rental import RentalView


class PageParams(Params, frozen=True, kw_only=True):
    """One page of a list that may be long. `since_s` leaves out what ended longer ago."""

    after: str | None = None  # `next` of the page before; null for the first
    since_s: float | None = None
    limit: int = 500


class RentalPage(View, frozen=True, kw_only=True):
    """Rentals of any phase, oldest first. `next` is null on the last page."""

    rentals: list[RentalView] = field(default_factory=list)
    next: str | None = None


class JobPage(View, frozen=True, kw_only=True):
    """Jobs in any state, oldest first. `next` is null on the last page."""

    jobs: list[JobView] = field(default_factory=list)
    next: str | None = None


class Record(Params, frozen=True, kw_only=True):
    """One machine as a file of somebody else tells of it. Null means the file does not say."""

    instance_id: int
    name: str | None = None
    rental_id: str | None = None  # in the state directory it comes from
    status: str | None = None
    gpu_name: str | None = None
    num_gpus: int | None = None
    dph_usd: float | None = None
    cost_usd: float | None = None
    created_at: str | None = None
    ended_at: str | None = None
    end_reason: str | None = None
    offer_id: int | None = None
    label: str | None = None
    image: str | None = None
    project: str | None = None
    experiments: list[str] = field(default_factory=list)


class ImportParams(Mutation, frozen=True, kw_only=True):
    """Compare records with Vast; with `keep`, take those whose machine has ended into the history.

    Nothing at Vast is changed, and no record ever counts as money spent.
    """

    records: list[Record]
    source: str  # where they come from, for people
    keep: bool = False
    more: int = 0  # to keep, in calls that follow: all of a file is kept or nothing


class VerdictView(View, frozen=True, kw_only=True):
    """What is known of one record's machine.

    `ours`: a rental of ours holds it. `known`: it was ours and ended. `foreign`: it exists and no
    rental of ours explains it. `ended`: Vast lists no such instance. `imported`: taken in before.
    """

    instance_id: int
    verdict: str
    name: str | None = None  # of our rental
    status: str | None = None  # Vast's word, for one that exists
    dph_usd: float | None = None  # as above
    kept: bool = False  # taken into the history by this call


class ImportView(View, frozen=True, kw_only=True):
    """One verdict per record, in the order they were sent."""

    verdicts: list[VerdictView] = field(default_factory=list)
    kept: int = 0


class ImportedView(View, frozen=True, kw_only=True):
    """A record that was taken in from a file: history of others, not of vastd."""

    record: Record
    source: str
    imported_at: str


class ImportedPage(View, frozen=True, kw_only=True):
    """Imported records, oldest import first. `next` is null on the last page."""

    imported: list[ImportedView] = field(default_factory=list)
    next: str | None = None


RENTALS = Method("record.rentals", PageParams, RentalPage, "Read all rentals, page by page")
JOBS = Method("record.jobs", PageParams, JobPage, "Read all jobs, page by page")
IMPORTED = Method("record.imported", PageParams, ImportedPage, "Read the imported records")
IMPORT = Method(
    "record.import", ImportParams, ImportView, "Compare records of a file with Vast", mutates=True
)

METHODS = (RENTALS, JOBS, IMPORTED, IMPORT)
