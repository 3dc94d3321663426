"""`setup.*`: make a machine ready for jobs: code, system packages, Python packages, proof."""

from msgspec import field

from vastd_protocol.method import Method, Mutation, Params, View
from vastd_protocol.methods.job import JobView
from vastd_protocol.methods.rental import RentalView


class SetupParams(Mutation, frozen=True, kw_only=True):
    """Send `project` (absolute) to the machine and install what it declares there.

    `requirements` are pip requirements files below the project, one call of pip each, in this
    order; null takes `requirements.txt` if there is one, an empty list installs nothing.
    """

    project: str
    rental: str | None = None  # null: the only one of `project`
    requirements: list[str] | None = None
    packages: list[str] = field(default_factory=list)  # for apt-get, before pip
    include: list[str] = field(default_factory=list)  # files sent although they look secret
    limit_s: float | None = None  # of each single step; null: an hour


class SetupRef(Params, frozen=True, kw_only=True):
    """`setup` is the id of its job; null means the newest of `project`."""

    setup: str | None = None
    project: str | None = None


class SetupCheckView(View, frozen=True, kw_only=True):
    """One thing that was installed or proven."""

    name: str
    ok: bool
    detail: str = ""


class SetupView(View, frozen=True, kw_only=True):
    """A set-up: a job of its own, so `job.*` and `log.*` know it as well."""

    job: JobView
    rental: RentalView | None = None
    steps: list[str] = field(default_factory=list)  # what it installs, as one would type it
    checks: list[SetupCheckView] = field(default_factory=list)  # so far, in their order
    ok: bool | None = None  # null while it goes on
    log_end: str | None = None  # the last lines, when it failed
    warnings: list[str] = field(default_factory=list)


RUN = Method("setup.run", SetupParams, SetupView, "Set a machine up for jobs", mutates=True)
GET = Method("setup.get", SetupRef, SetupView, "Return a set-up, its checks and its end")

METHODS = (RUN, GET)
