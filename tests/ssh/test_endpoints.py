"""Where an instance's sshd may answer, for every shape a row takes."""

import pytest

from vastd.core.market import Instance
from vastd.jobs.port import Endpoint, Route
from vastd.ssh.endpoints import endpoints, prefer, ssh_url

DIRECT = {"public_ip": "203.0.113.7", "direct_ssh_port": 40112}
PROXY = {"ssh_host": "ssh5.vast.ai", "ssh_port": 31000}


@pytest.mark.req("SSH-01")
@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({}, []),
        (DIRECT, [("203.0.113.7", 40112, "direct")]),
        (PROXY, [("ssh5.vast.ai", 31000, "proxy")]),
        ({**PROXY, "runtype": "jupyter_proxy ssh_proxy"}, [("ssh5.vast.ai", 31001, "proxy")]),
        ({**DIRECT, **PROXY}, [("203.0.113.7", 40112, "direct"), ("ssh5.vast.ai", 31000, "proxy")]),
        (
            {**DIRECT, **PROXY, "runtype": "jupyter_direc ssh_direc ssh_proxy"},
            [("203.0.113.7", 40112, "direct"), ("ssh5.vast.ai", 31001, "proxy")],
        ),
        ({**DIRECT, "public_ip": "203.0.113.7\n"}, [("203.0.113.7", 40112, "direct")]),
        ({**DIRECT, "direct_ssh_port": -1}, []),
        ({"public_ip": "203.0.113.7"}, []),
        ({"direct_ssh_port": 40112}, []),
        ({**PROXY, "ssh_port": 65535, "runtype": "jupyter"}, []),
    ],
)
def test_direct_comes_before_the_proxy_and_jupyter_shifts_only_the_proxy(
    row: dict[str, object], expected: list[tuple[str, int, str]]
) -> None:
    found = endpoints(Instance(instance_id=1, **row))

    assert [(e.host, e.port, str(e.route)) for e in found] == expected


@pytest.mark.req("SSH-12")
def test_a_new_row_gives_new_ports_and_the_route_that_worked_goes_first() -> None:
    both = endpoints(Instance(instance_id=1, **{**DIRECT, **PROXY, "direct_ssh_port": 7}))

    assert [e.route for e in prefer(both, Route.PROXY)] == [Route.PROXY, Route.DIRECT]
    assert prefer(both, None) == both
    assert both[0].port == 7


@pytest.mark.req("SSH-02")
def test_the_url_puts_ipv6_in_brackets() -> None:
    plain = Endpoint(host="h", port=22, route=Route.PROXY)
    six = Endpoint(host="2001:db8::1", port=22, route=Route.DIRECT)

    assert (ssh_url(plain), ssh_url(six)) == ("ssh://root@h:22", "ssh://root@[2001:db8::1]:22")
