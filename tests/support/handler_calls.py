"""Calling handlers of a daemon in memory as a client's request would, without a socket."""

from pathlib import Path
from typing import Any, cast

from support.daemon_in_memory import Daemon
from vastd.config.load import load
from vastd.configuration import ConfigurationHolder
from vastd.rpc.context import Context

NOBODY = cast("Any", None)  # of a call that nobody sent: nothing is kept to be repeated


def context_of(daemon: Daemon) -> Context:
    """What handlers of `daemon` may use, with the default configuration."""
    unused = cast("Any", None)
    config = ConfigurationHolder(load(Path("/nowhere/config.toml"), {}))
    return Context(
        shell=daemon.shell, supervisor=daemon.supervisor, poller=daemon.poller,
        config=cast("Any", config), hub=unused, planner=unused, doctor=unused, info=unused,
        socket=unused, vast_url="", key_origin=unused, identity=unused,
        known_hosts_file=unused, acknowledge=lambda: None,
    )  # fmt: skip
