"""A session with the official client against the simulated Vast: it must make sense throughout."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from witness.session import Session, plain

pytestmark = [pytest.mark.e2e, pytest.mark.ssh]

Row = dict[str, Any]


# -- the main job, each command a start of the installed program --------------------------------


def test_a_machine_is_found_rented_used_over_ssh_and_destroyed(user: Session, tmp_path: Path):
    said = user.program("create", "ssh-key", user.public_key)
    assert said.exit == 0
    assert user.public_key in said.stdout

    said = user.program("search", "offers", "gpu_name=RTX_4090 num_gpus=1 direct_port_count>0")
    header, first, *_ = plain(said.stdout).splitlines()
    assert header.split()[:5] == ["#", "ID", "CUDA", "N", "Model"]
    assert "RTX_4090" in first
    offer = first.split()[1]

    said = user.program(
        "create", "instance", offer, "--image", "pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime",
        "--disk", "20", "--ssh", "--direct", "--label", "lab", "--env", "-e MODE=fast -p 8080:8080",
        "--onstart-cmd", "touch /root/began", "--cancel-unavail",
    )  # fmt: skip
    assert said.stdout.startswith("Started. {'success': True, 'new_contract': ")
    found = re.search(r"'new_contract': (\d+)", said.stdout)
    assert found is not None
    number = found[1]
    user.wait(int(number))

    said = user.program("show", "instances")
    assert said.exit == 0
    assert {number, "running", "lab"} <= set(plain(said.stdout).replace("│", " ").split())

    url = user.program("ssh-url", number).stdout.strip()
    assert re.fullmatch(r"ssh://root@127\.0\.0\.1:\d+", url)
    done = user.ssh("ssh", url, "nvidia-smi")
    assert done.returncode == 0, done.stderr
    assert "RTX 4090" in done.stdout
    assert user.ssh("ssh", url, "ls /root/began").returncode == 0
    # sshd hands nothing of the container's environment on; Vast keeps it with the first process.
    done = user.ssh("ssh", url, "cat /proc/1/environ /etc/environment 2>/dev/null")
    assert "VAST_CONTAINERLABEL" in done.stdout

    (tmp_path / "up").write_text("42\n")
    url = user.says("scp-url", number).strip()
    assert user.ssh("scp", str(tmp_path / "up"), f"{url}//root/up").returncode == 0
    assert user.ssh("scp", f"{url}//root/up", str(tmp_path / "down")).returncode == 0
    assert (tmp_path / "down").read_text() == "42\n"

    said = user.program("destroy", "instance", number, "-y")
    assert (said.exit, said.stdout) == (0, f"destroying instance {number}.\n")
    user.wait(int(number), "gone")
    said = user.type("show", "instance", number)
    assert said.exit == 1
    assert said.stderr == f"Instance {number} not found or no longer exists.\n"


# -- searching ----------------------------------------------------------------------------------

GRAMMAR: list[tuple[str, Callable[[Row], bool]]] = [
    ("num_gpus = 2", lambda row: row["num_gpus"] == 2),
    ("num_gpus == 2", lambda row: row["num_gpus"] == 2),
    ("num_gpus eq 2", lambda row: row["num_gpus"] == 2),
    ("num_gpus != 1", lambda row: row["num_gpus"] != 1),
    ("num_gpus neq 1", lambda row: row["num_gpus"] != 1),
    ("num_gpus not eq 1", lambda row: row["num_gpus"] != 1),
    ("num_gpus > 1", lambda row: row["num_gpus"] > 1),
    ("num_gpus gt 1", lambda row: row["num_gpus"] > 1),
    ("num_gpus >= 2", lambda row: row["num_gpus"] >= 2),
    ("num_gpus gte 2", lambda row: row["num_gpus"] >= 2),
    ("num_gpus < 2", lambda row: row["num_gpus"] < 2),
    ("num_gpus lt 2", lambda row: row["num_gpus"] < 2),
    ("num_gpus <= 2", lambda row: row["num_gpus"] <= 2),
    ("num_gpus lte 2", lambda row: row["num_gpus"] <= 2),
    ("gpu_name in [RTX_4090,RTX_3090]", lambda row: row["gpu_name"] in ("RTX 4090", "RTX 3090")),
    ("gpu_name notin [RTX_4090]", lambda row: row["gpu_name"] != "RTX 4090"),
    ("gpu_name nin [RTX_4090]", lambda row: row["gpu_name"] != "RTX 4090"),
    ("gpu_name not in [RTX_4090]", lambda row: row["gpu_name"] != "RTX 4090"),
    ('gpu_name="RTX 4090"', lambda row: row["gpu_name"] == "RTX 4090"),
    ("gpu_ram >= 20 gpu_ram <= 25", lambda row: 20_000 <= row["gpu_ram"] <= 25_000),
    ("gpu_total_ram >= 48", lambda row: row["gpu_total_ram"] >= 48_000),
    ("cpu_ram >= 64", lambda row: row["cpu_ram"] >= 64_000),
    ("duration > 30", lambda row: row["duration"] > 30 * 86_400),
    ("driver_version >= 550.00.00", lambda row: row["driver_vers"] >= 550_000_000),
    ("cuda_vers >= 12.6", lambda row: row["cuda_max_good"] >= 12.6),
    ("dph < 0.5", lambda row: row["dph_total"] < 0.5),
    ("reliability > 0.98 inet_down >= 500",
     lambda row: row["reliability"] > 0.98 and row["inet_down"] >= 500),
    ("static_ip = true", lambda row: row["static_ip"] is True),
    ("datacenter = true verified = any", lambda row: row["hosting_type"] == 1),
    ("geolocation in [SE,US,CA]", lambda row: row["geolocation"][-2:] in ("SE", "US", "CA")),
    ("verified = false", lambda row: row["verification"] != "verified"),
    ("rentable = any", lambda row: row["verification"] == "verified"),
]  # fmt: skip


@pytest.mark.parametrize(("query", "fits"), GRAMMAR, ids=[query for query, _ in GRAMMAR])
def test_a_query_finds_what_it_says(user: Session, query: str, fits: Callable[[Row], bool]):
    rows = user.raw("search", "offers", query)

    assert rows
    assert all(fits(row) for row in rows)


def test_a_search_is_ordered_limited_and_priced_as_asked(user: Session):
    cheap = user.raw("search", "offers", "-o", "dph+", "--limit", "7", "--storage", "10")
    dear = user.raw("search", "offers", "-o", "dph-,score-")
    assert [row["dph_total"] for row in cheap] == sorted(row["dph_total"] for row in cheap)
    assert len(cheap) == 7
    assert dear[0]["dph_total"] == max(row["dph_total"] for row in dear)

    machine = f"ask_contract_id={cheap[0]['id']}"
    said = user.type("search", "offers", machine, "--storage", "730", "--raw")
    assert "Unrecognized field" in said.stderr  # a warning; it is sent all the same
    (large,) = json.loads(said.stdout)
    hourly = large["storage_cost"] * (730 - 10) / 720
    assert large["dph_total"] - cheap[0]["dph_total"] == pytest.approx(hourly, abs=1e-4)


def test_the_kind_of_offer_changes_the_price(user: Session):
    query = "num_gpus=1 gpu_name=RTX_4090"
    bids = {row["id"]: row for row in user.raw("search", "offers", query, "--type", "bid")}
    firm = {row["id"]: row for row in user.raw("search", "offers", query, "--on-demand")}
    user.raw("search", "offers", query, "--type", "reserved")
    both = bids.keys() & firm.keys()
    assert both
    assert all(bids[i]["dph_total"] < firm[i]["dph_total"] for i in both)
    assert {row["is_bid"] for row in bids.values()} == {True}


def test_an_offer_is_not_found_by_id_and_a_list_after_an_equals_sign_matches_nothing(user: Session):
    offer = user.raw("search", "offers", "--limit", "1")[0]

    assert user.raw("search", "offers", f"id={offer['id']}") == []
    assert user.raw("search", "offers", "gpu_name=[RTX_4090,RTX_3090]") == []


def test_a_query_that_does_not_parse_asks_nothing(user: Session):
    before = len(user.journal())

    said = user.type("search", "offers", "gpu_ram 48")

    assert said.exit == 1
    assert said.stdout.startswith("Error:")
    asked = user.journal()[before:]
    assert all("bundles" not in call["path"] for call in asked)


def test_the_new_search_applies_no_server_defaults(user: Session):
    old = user.raw("search", "offers", "-n", "num_gpus=1")
    new = user.raw("search", "offers", "-n", "--new", "num_gpus=1")

    # Without its own defaults the client sends none; of the two routes one has defaults itself.
    assert {row["verification"] for row in old} == {"verified"}
    assert {row["verification"] for row in new} > {"verified"}
    assert {row["num_gpus"] for row in new} == {1}
