"""Handing over to the user's own OpenSSH, with the endpoint vastd keeps."""

import os
from typing import NoReturn

from vastctl.context import Context
from vastctl.errors import CliError
from vastd_protocol.errors import ExitCode
from vastd_protocol.methods import access
from vastd_protocol.methods.access import EndpointView
from vastd_protocol.methods.rental import RentalRef


def endpoint(ctx: Context) -> tuple[bytes, EndpointView]:
    """Return how to reach the machine that is meant, raw and decoded."""
    wish = RentalRef(rental=ctx.args.rental, project=ctx.project)
    body = ctx.client.raw(access.ENDPOINT, wish)
    return body, ctx.client.view(access.ENDPOINT, body)


def become(ctx: Context, argv: list[str]) -> NoReturn:
    """Replace this process by `argv`: nothing of ours stays between the user and ssh.

    Raises:
        CliError: there is no such program.
    """
    if not argv:
        raise CliError("vastd gave no ssh command", exit_code=ExitCode.TOOL_FAILED)
    ctx.screen.flush()
    ctx.client.close()
    try:
        os.execvp(argv[0], argv)  # the whole point
    except OSError as exc:
        raise CliError(
            f"cannot run {argv[0]!r}: {exc.strerror}",
            hint="install the OpenSSH client; `vastctl doctor` checks it",
            exit_code=ExitCode.TOOL_FAILED,
        ) from exc
