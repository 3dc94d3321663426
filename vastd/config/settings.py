"""Every setting: its table, type, range, default, and why the default is what it is.

Rules
1. The Structs below are the only list of settings: reading, showing and changing follow them.
2. The unit is in the name: `_s` seconds, `_gb` gigabytes, `_usd` dollars, `_percent`.
3. Nothing here is secret. Keys are read from files or the environment, settings name the file.
"""

from enum import StrEnum
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct, field

Value = str | int | float | bool | list[str] | None
"""What a setting may hold in the file; None is a key that is left out."""


def _why(source: str) -> dict[str, str]:
    return {"source": source}


def _later(source: str) -> dict[str, str]:
    """Return the source of a setting that is read and checked, and has no effect yet: whoever sets
    it must not believe that it protects him."""
    return {"source": f"NOT IN FORCE YET; {source}"}


class Profile(StrEnum):
    """Whose file formats and defaults a project follows."""

    ARIS = "aris"
    ARF = "arf"


PROFILE_IMAGES: Final[dict[Profile, str]] = {
    Profile.ARIS: "pytorch/pytorch:2.1.0-cuda12.1-cudnn8-devel",  # REQUIREMENTS CRE-03
    Profile.ARF: "pytorch/pytorch:2.6.0-cuda12.6-cudnn9-devel",  # REQUIREMENTS CRE-03
}

DEFAULT_URL: Final = "https://console.vast.ai"

Seconds = Annotated[float, Meta(gt=0, le=31_536_000)]  # at most a year: more is a unit mistaken
Interval = Annotated[float, Meta(ge=0, le=3600)]
Url = Annotated[str, Meta(pattern=r"^https?://[^\s/@?#]+(/[^\s?#]*)?\Z")]
Text = Annotated[str, Meta(min_length=1, max_length=4096, pattern=r"^[^\x00-\x1f\x7f]+\Z")]
RelativePath = Annotated[
    str, Meta(min_length=1, max_length=1024, pattern=r"^[^/~\x00-\x1f\x7f][^\x00-\x1f\x7f]*\Z")
]
Name = Annotated[str, Meta(min_length=1, max_length=80, pattern=r"^[A-Za-z0-9][A-Za-z0-9 _.-]*\Z")]
Image = Annotated[str, Meta(min_length=1, max_length=1024, pattern=r"^[^\s\x00-\x1f\x7f]+\Z")]
WebOrigin = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9+.-]*://[^\s/]+\Z")]


class VastTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which Vast, and where its key is."""

    url: Annotated[Url, Meta(extra=_why("the address of Vast's API; $VAST_URL overrides"))] = (
        DEFAULT_URL
    )
    api_key_file: Annotated[
        Text | None,
        Meta(extra=_why("unset: $VAST_API_KEY, then the files of Vast's own command line")),
    ] = None


class DefaultsTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a rental gets when the command does not say."""

    image: Annotated[
        Image | None, Meta(extra=_why("unset: the image the profile's workflow documents"))
    ] = None
    disk_gb: Annotated[
        float,
        Meta(
            ge=1,
            le=100_000,
            extra=_why("room for an image of 20 GB, code, data and checkpoints; guess"),
        ),
    ] = 50.0
    max_runtime_s: Annotated[
        Seconds, Meta(extra=_why("12 h: a night's training; forgetting costs at most that"))
    ] = 43_200.0
    idle_s: Annotated[
        Seconds, Meta(extra=_why("20 min: longer than loading a model, shorter than lunch; guess"))
    ] = 1200.0
    profile: Annotated[Profile, Meta(extra=_why("the workflow with the plainer files"))] = (
        Profile.ARIS
    )
    ssh_key: Annotated[
        Text | None,
        Meta(extra=_why("unset: ~/.ssh/id_ed25519, else a key vastd makes in its state")),
    ] = None
    ssh_config: Annotated[
        bool, Meta(extra=_later("off: the files of your own ssh are yours unless you say so"))
    ] = False

    unreachable_end_s: Annotated[
        Seconds | None,
        Meta(
            extra=_why(
                "unset: never, because it may be working (REQUIREMENTS WAT-15); the deadline, the "
                "budget and the lease bound the bill"
            )
        ),
    ] = None
    on_outbid: Annotated[
        Literal["resume", "rerent", "end"],
        Meta(
            extra=_why(
                "waiting rents nothing: `resume` waits until the bid wins again, `rerent` takes a "
                "job with a checkpoint to another machine, `end` gives it up"
            )
        ),
    ] = "resume"
    outbid_wait_s: Annotated[
        Seconds, Meta(extra=_why("6 h at storage price: a night's demand may pass; guess"))
    ] = 21_600.0
    on_zero_credit: Annotated[
        Literal["end", "warn"],
        Meta(
            extra=_why(
                "REQUIREMENTS BUD-13: at zero Vast stops every machine and promises no data; "
                "`end` brings the results of jobs home before that, `warn` leaves it to Vast"
            )
        ),
    ] = "end"

    def image_for(self, profile: Profile | None = None) -> str:
        """Return the image to rent with: the one set here, else the profile's."""
        return self.image or PROFILE_IMAGES[profile or self.profile]


class NeedsTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a task needs when the command does not say; most useful in a project's own file."""

    gpu_ram_gb: Annotated[
        Annotated[float, Meta(gt=0, le=100_000)] | None,
        Meta(extra=_why("unset: unknown, and the plan asks; per GPU")),
    ] = None
    num_gpus: Annotated[
        Annotated[int, Meta(ge=1, le=64)] | None, Meta(extra=_why("unset: one GPU"))
    ] = None
    gpu_name: Annotated[Name | None, Meta(extra=_why("unset: any GPU that fits"))] = None
    hours: Annotated[
        Annotated[float, Meta(gt=0, le=8760)] | None,
        Meta(extra=_why("unset: unknown, so that only prices per hour can be shown")),
    ] = None
    spot: Annotated[
        bool, Meta(extra=_why("off: an interruptible machine may be stopped at any time"))
    ] = False


class JobTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a job writes when the command does not say; most useful in a project's own file."""

    outputs: Annotated[
        tuple[RelativePath, ...],
        Meta(max_length=100, extra=_why("REQUIREMENTS COL-01: none named: results/ and *.log")),
    ] = field(default=())
    heartbeat: Annotated[
        RelativePath | None, Meta(extra=_why("unset: no heartbeat is watched"))
    ] = None
    heartbeat_interval_s: Annotated[
        Seconds | None, Meta(extra=_why("unset: 300 s, REQUIREMENTS CKP-04"))
    ] = None
    checkpoint: Annotated[
        RelativePath | None, Meta(extra=_why("unset: the job saves no state anybody knows of"))
    ] = None


class TimingTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often we look, and how long we wait."""

    list_interval_busy_s: Annotated[
        Seconds, Meta(extra=_why("REQUIREMENTS C-04: while something is starting or running"))
    ] = 20.0
    list_interval_idle_s: Annotated[
        Seconds, Meta(extra=_why("REQUIREMENTS C-04: only surprises are looked for"))
    ] = 60.0
    boot_warn_s: Annotated[
        Seconds,
        Meta(extra=_why("REQUIREMENTS WAI-03: usually 30 to 60 s, so 5 min deserve a warning")),
    ] = 300.0
    boot_timeout_s: Annotated[
        Seconds,
        Meta(
            extra=_why(
                "WAI-04: 10 min; twice the pull time of an image of known size, up to three times "
                "this; longer while Vast's message moves"
            )
        ),
    ] = 600.0
    ssh_budget_s: Annotated[
        Seconds, Meta(extra=_why("REQUIREMENTS C-06: keys may arrive minutes after `running`"))
    ] = 300.0
    ssh_spacing_s: Annotated[
        Seconds, Meta(extra=_why("REQUIREMENTS C-06: 20 attempts fit into the budget"))
    ] = 15.0
    ssh_connect_s: Annotated[Seconds, Meta(extra=_why("REQUIREMENTS SSH-03: both workflows"))] = (
        15.0
    )
    settle_s: Annotated[
        Seconds, Meta(extra=_why("a listing may lag behind a create or destroy; guess"))
    ] = 30.0
    destroy_retry_s: Annotated[
        Seconds, Meta(extra=_why("guess: Vast wants 3 s between destroys, and publishes no more"))
    ] = 30.0
    destroy_shout_s: Annotated[
        Seconds, Meta(extra=_why("10 min unconfirmed: money leaks and a human should know"))
    ] = 600.0
    heartbeat_stale_factor: Annotated[
        float, Meta(ge=1, le=1000, extra=_why("two missed heartbeats are no accident any more"))
    ] = 2.0
    grace_s: Annotated[
        Seconds, Meta(extra=_why("from SIGTERM to the end: time to write a checkpoint; guess"))
    ] = 60.0
    lease_s: Annotated[
        Seconds, Meta(extra=_why("a machine nobody renews ends itself after an hour"))
    ] = 3600.0
    lease_renew_s: Annotated[
        Seconds, Meta(extra=_why("12 renewals may fail before a lease of an hour runs out"))
    ] = 300.0
    lease_while_busy: Annotated[
        Literal["deadline", "lease_s"],
        Meta(extra=_why("a closed laptop must not end a running job before its deadline")),
    ] = "deadline"
    on_expiry: Annotated[
        Literal["stop_if_uncollected", "destroy"],
        Meta(extra=_why("stopped storage costs cents, lost results cost the whole run")),
    ] = "stop_if_uncollected"
    lease_required: Annotated[
        bool, Meta(extra=_why("on: a machine whose guard cannot be armed is not used"))
    ] = True
    salvage: Annotated[
        Text | None,
        Meta(
            extra=_why(
                "unset: nothing; a shell command that the machine runs in the project directory "
                "before its lease ends it, for 10 min at most. The host can read it: no secrets"
            )
        ),
    ] = None
    attempts: Annotated[
        int,
        Meta(
            ge=1, le=100, extra=_why("REQUIREMENTS FAI-03: stop after 3 hosts that failed in a row")
        ),
    ] = 3


class BudgetTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Caps in dollars, enforced before a machine is rented and while it runs; 0 rents nothing. Days
    and months are those of UTC."""

    per_job_usd: Annotated[
        float, Meta(ge=0, le=1_000_000, extra=_why("a mistake should cost a lunch; guess"))
    ] = 10.0
    per_day_usd: Annotated[
        float,
        Meta(
            ge=0,
            le=1_000_000,
            extra=_why("of all machines, from 00:00 UTC on: a night of one large GPU; guess"),
        ),
    ] = 25.0
    max_dph_usd: Annotated[
        float,
        Meta(
            ge=0, le=100_000, extra=_why("of each machine, not of their sum: one large GPU; guess")
        ),
    ] = 4.0
    per_project_usd: Annotated[
        Annotated[float, Meta(ge=0, le=1_000_000)] | None,
        Meta(extra=_why("of one project directory, for all time; unset: no cap")),
    ] = None
    per_month_usd: Annotated[
        Annotated[float, Meta(ge=0, le=1_000_000)] | None,
        Meta(extra=_why("of all machines, from the first of the month UTC on; unset: no cap")),
    ] = None
    warn_percent: Annotated[
        float, Meta(gt=0, le=100, extra=_why("early enough to finish or raise the cap; guess"))
    ] = 80.0


class WebsocketTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The optional TCP port for WebSocket clients."""

    port: Annotated[
        Annotated[int, Meta(ge=1, le=65_535)] | None,
        Meta(extra=_later("unset: no TCP port is opened; the socket speaks WebSocket too")),
    ] = None
    origins: Annotated[
        tuple[WebOrigin, ...],
        Meta(extra=_why("none: a web page must not drive vastd unless it is named here")),
    ] = field(default=())


class RatesTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Least seconds between two calls of one kind; 0 switches the pacing of it off."""

    search: Annotated[Interval, Meta(extra=_why("Vast documents 10 searches a minute"))] = 6.0
    create: Annotated[Interval, Meta(extra=_why("Vast documents 4.5 s, and a penalty"))] = 4.5
    list: Annotated[Interval, Meta(extra=_why("Vast documents 1 s"))] = 1.0
    get: Annotated[Interval, Meta(extra=_why("Vast documents 2 s"))] = 2.0
    destroy: Annotated[Interval, Meta(extra=_why("Vast documents 3 s"))] = 3.0
    change: Annotated[Interval, Meta(extra=_why("start, stop, label: Vast documents 1 s"))] = 1.0
    bid: Annotated[Interval, Meta(extra=_why("Vast documents 5.5 s"))] = 5.5
    keys: Annotated[Interval, Meta(extra=_why("guess: none is documented for this route"))] = 1.0
    add_key: Annotated[Interval, Meta(extra=_why("Vast documents 1 s"))] = 1.0
    attach_key: Annotated[Interval, Meta(extra=_why("guess: Vast documents 2 s to detach"))] = 2.0
    account: Annotated[Interval, Meta(extra=_why("guess: none is documented for this route"))] = 1.0


Days = Annotated[int, Meta(ge=1, le=36_500)]
BYTES_PER_MB: Final = 1_000_000
Megabytes = Annotated[int, Meta(ge=1, le=10_000_000)]


class RetentionTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long vastd keeps what is over. Nothing that bills or is not home is ever dropped."""

    events_days: Annotated[
        Days, Meta(extra=_why("a year: the audit trail answers questions about last year's bill"))
    ] = 365
    records_days: Annotated[
        Annotated[int, Meta(ge=32, le=36_500)],
        Meta(extra=_why("ended rentals and jobs; at least a month, which `cost` shows in detail")),
    ] = 365
    logs_days: Annotated[
        Days,
        Meta(extra=_why("logs of ended jobs: a paper's revision comes within a season; guess")),
    ] = 180
    logs_max_mb: Annotated[
        Megabytes, Meta(extra=_why("all logs of ended jobs together, oldest first; guess"))
    ] = 10_000
    job_log_max_mb: Annotated[
        Megabytes, Meta(extra=_why("one job's log at home: a runaway print must not fill the disk"))
    ] = 1000
    copies_days: Annotated[
        Days, Meta(extra=_why("damaged stores, and copies made before a migration; guess"))
    ] = 90


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All tables; `Settings()` holds every default."""

    vast: VastTable = VastTable()
    defaults: DefaultsTable = DefaultsTable()
    needs: NeedsTable = NeedsTable()
    job: JobTable = JobTable()
    timing: TimingTable = TimingTable()
    budget: BudgetTable = BudgetTable()
    websocket: WebsocketTable = WebsocketTable()
    rates: RatesTable = RatesTable()
    retention: RetentionTable = RetentionTable()
