"""Where an instance's sshd may answer, computed from its listing row."""

from vastd.core.market import Instance
from vastd.jobs.port import Endpoint, Route

_LAST_PORT = 65535


def endpoints(instance: Instance, user: str = "root") -> list[Endpoint]:
    """Return the addresses to try, best first: direct, then Vast's proxy; empty while unknown.

    Vast's images let nobody but root in; `user` is for other servers.

    The port mapping changes at every start, so this is computed from the newest row each
    time and never stored.
    """
    found: list[Endpoint] = []
    direct_host = _clean(instance.public_ip)
    if direct_host and _is_port(instance.direct_ssh_port):
        assert instance.direct_ssh_port is not None
        found.append(
            Endpoint(host=direct_host, port=instance.direct_ssh_port, user=user, route=Route.DIRECT)
        )
    proxy_host = _clean(instance.ssh_host)
    if proxy_host and instance.ssh_port is not None:
        # The row names the jupyter port when the runtype has one; sshd is the next port
        # (VAST_API 4.4, as the official client computes it).
        shift = 1 if "jupyter" in (instance.runtype or "") else 0
        if _is_port(instance.ssh_port + shift):
            found.append(
                Endpoint(
                    host=proxy_host, port=instance.ssh_port + shift, user=user, route=Route.PROXY
                )
            )
    return found


def prefer(candidates: list[Endpoint], route: Route | None) -> list[Endpoint]:
    """Return `candidates` with those of the route that worked last time in front."""
    return sorted(candidates, key=lambda endpoint: endpoint.route is not route)


def ssh_url(endpoint: Endpoint) -> str:
    """Return `ssh://user@host:port`, with IPv6 addresses in brackets."""
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"ssh://{endpoint.user}@{host}:{endpoint.port}"


def _clean(host: str | None) -> str:
    # Vast's `public_ipaddr` was seen to end in a newline (VAST_API 4.3).
    return (host or "").strip()


def _is_port(port: int | None) -> bool:
    # Vast says -1 while no port is assigned (VAST_API 4.3).
    return port is not None and 0 < port <= _LAST_PORT
