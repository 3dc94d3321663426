"""`exec.run`, `ssh.endpoint`: commands and the way to a machine."""

from vastd_protocol.method import Method, Mutation, View
from vastd_protocol.methods.rental import RentalRef, SshView


class ExecParams(Mutation, frozen=True, kw_only=True):
    """Run one shell command; no stdin, output capped at `limit_bytes` per stream."""

    rental: str | None = None
    project: str | None = None
    command: str
    timeout_s: float = 60.0
    limit_bytes: int = 1_000_000


class ExecView(View, frozen=True, kw_only=True):
    """The end of the command. Undecodable bytes are replaced in the text."""

    rental_id: str
    exit_code: int
    stdout: str
    stderr: str
    truncated: bool = False


class EndpointView(View, frozen=True, kw_only=True):
    """Everything the user's own OpenSSH needs; `argv` is ready to run (without a command)."""

    rental_id: str
    instance_id: int
    ssh: SshView
    identity_file: str
    known_hosts_file: str
    host_key_alias: str
    argv: list[str]


EXEC = Method("exec.run", ExecParams, ExecView, "Run a short command", mutates=True)
ENDPOINT = Method("ssh.endpoint", RentalRef, EndpointView, "Return how to reach a machine by SSH")

METHODS = (EXEC, ENDPOINT)
