"""`file.*`: copies to and from a machine, made by the daemon."""

from vastd_protocol.method import Method, Mutation, View


class FilePushParams(Mutation, frozen=True, kw_only=True):
    """Copy local absolute `sources` into `destination` on the machine (never `/` or `/root`)."""

    rental: str | None = None
    project: str | None = None
    sources: list[str]
    destination: str = "/workspace/project"


class FilePullParams(Mutation, frozen=True, kw_only=True):
    """Copy remote `sources` into the local absolute directory; never deletes locally."""

    rental: str | None = None
    project: str | None = None
    sources: list[str]
    destination: str


class CopyView(View, frozen=True, kw_only=True):
    """A finished copy."""

    rental_id: str
    destination: str
    bytes: int


PUSH = Method("file.push", FilePushParams, CopyView, "Copy files to a machine", mutates=True)
PULL = Method("file.pull", FilePullParams, CopyView, "Copy files from a machine", mutates=True)

METHODS = (PUSH, PULL)
