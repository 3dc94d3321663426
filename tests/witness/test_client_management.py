"""Everything else a user does with the official client: managing, keys, bills, and refusals."""

import re
from pathlib import Path

import pytest

from support.sim_hosts import make_ssh_key
from witness.session import Session, plain

pytestmark = [pytest.mark.e2e, pytest.mark.ssh]

# -- renting and managing -----------------------------------------------------------------------


def test_a_bid_rents_interruptible_and_can_be_changed(user: Session):
    number = user.rent("--ssh", "--bid_price", "3.5", "--label", "spot")
    assert (user.row(number)["is_bid"], user.row(number)["dph_base"]) == (True, 3.5)

    assert user.says("change", "bid", str(number), "--price", "4") == "Per gpu bid price changed\n"
    assert user.row(number)["dph_base"] == 4.0
    user.says("change", "bid", str(number))
    assert user.row(number)["dph_base"] == pytest.approx(user.row(number)["min_bid"])

    user.says("destroy", "instances", str(number), "-y")
    user.wait(number, "gone")


def test_an_instance_lives_through_label_stop_start_reboot_and_recycle(user: Session):
    number = user.rent("--ssh", "--direct")
    word = str(number)
    user.wait(number)
    assert user.row(number)["actual_status"] == "running"

    assert (
        user.says("label", "instance", word, "my label") == f"label for {word} set to my label.\n"
    )
    rows = user.raw("show", "instances", "--label", "my label")
    assert [row["id"] for row in rows] == [number]

    assert user.says("stop", "instance", word) == f"stopping instance {word}.\n"
    user.wait(number, "down")
    row = user.row(number)
    assert (row["intended_status"], row["ports"]) == ("stopped", {})
    assert row["actual_status"] in ("exited", "stopped")
    assert row["instance"]["gpuCostPerHour"] == 0

    assert user.says("start", "instance", word) == f"starting instance {word}.\n"
    user.wait(number)
    assert user.says("reboot", "instance", word) == f"Rebooting instance {word}.\n"
    user.wait(number)
    assert user.says("recycle", "instance", word) == f"Recycling instance {word}.\n"
    user.wait(number)
    updated = user.says("update", "instance", word, "--image", "debian:12", "--env", '{"A":"2"}')
    assert "updated successfully" in updated
    user.wait(number)
    row = user.row(number)
    assert (row["image_uuid"], row["extra_env"]) == ("debian:12", {"A": "2"})

    assert "destroying instance" in user.says("destroy", "instance", word)
    user.wait(number, "gone")


def test_logs_and_execute_reach_the_container(user: Session):
    number = user.rent("--ssh", "--direct", "--onstart-cmd", "echo apple; echo berry")
    user.wait(number)

    assert "berry" in user.says("logs", str(number), "--filter", "berry")
    assert "apple" not in user.says("logs", str(number), "--tail", "1", "--filter", "berry")
    said = user.type("execute", str(number), "cat /etc/passwd")
    assert said.stderr == "Failed with error 400: Invalid command given.\n"
    # Client 1.9.1 crashes once it has the text, whatever the server says.
    said = user.type("execute", str(number), "ls /root")
    assert said.exit == 1
    assert said.stderr.endswith("AttributeError: 'str' object has no attribute 'get'\n")
    user.says("destroy", "instance", str(number), "-y")


def test_what_cannot_be_rented_says_why(user: Session):
    said = user.type("create", "instance", "999", "--image", "ubuntu:22.04")
    assert (said.exit, said.stdout) == (0, "")
    assert said.stderr.startswith("Failed with error 400: error 404/3603: no_such_ask")

    said = user.type(
        "create", "instance", "999", "--image", "x", "--link-volume", "3", "--mount-path", "/d"
    )
    assert said.stderr == "Failed with error 404: No such volume.\n"


def test_the_best_offer_of_a_search_is_launched(user: Session):
    words = ["launch", "instance", "-g", "RTX_4090", "-n", "1", "-i", "ubuntu:22.04", "--ssh"]
    made = user.raw(*words)

    row = user.row(made["new_contract"])
    assert (row["gpu_name"], row["num_gpus"]) == ("RTX 4090", 1)
    user.says("destroy", "instance", str(made["new_contract"]), "-y")


def test_what_was_destroyed_cannot_be_managed(user: Session):
    for words in (
        ("destroy", "instance", "77", "-y"),
        ("stop", "instance", "77"),
        ("label", "instance", "77", "x"),
        ("reboot", "instance", "77"),
    ):
        said = user.type(*words)
        assert (said.exit, said.stderr) == (0, "Failed with error 404: No such instance: 77.\n")
    assert user.type("ssh-url", "77").exit == 1


# -- keys, account, money -----------------------------------------------------------------------


def test_ssh_keys_are_added_changed_and_removed(user: Session):
    one, two = "ssh-ed25519 AAAAC3NzaC1onekey me@here", "ssh-ed25519 AAAAC3NzaC1twokey me@here"
    assert "No ssh keys" in user.type("show", "ssh-keys").stderr  # the live form of an empty list
    user.says("create", "ssh-key", one)
    key = next(row for row in user.raw("show", "ssh-keys") if row["public_key"] == one)
    assert "True" in user.says("update", "ssh-key", str(key["id"]), two)
    keys = {row["public_key"]: row["id"] for row in user.raw("show", "ssh-keys")}
    assert one not in keys
    assert "True" in user.says("delete", "ssh-key", str(keys[two]))
    assert "No ssh keys" in user.type("show", "ssh-keys").stderr


def test_a_key_is_accepted_by_an_instance_while_it_is_attached(user: Session, tmp_path: Path):
    number = user.rent("--ssh", "--direct")
    word, identity = str(number), tmp_path / "late"
    late = make_ssh_key(identity).strip()
    user.says("create", "ssh-key", late)
    user.wait(number)
    url = user.says("ssh-url", word).strip()
    # A key of the account reaches instances made after it; to this one it must be attached.
    assert user.ssh("ssh", url, "true", identity=identity).returncode == 255

    assert "SSH key added to instance." in user.says("attach", "ssh", word, late)
    assert user.ssh("ssh", url, "true", identity=identity).returncode == 0

    key = next(row["id"] for row in user.raw("show", "ssh-keys") if row["public_key"] == late)
    assert "SSH key removed from instance." in user.says("detach", "ssh", word, str(key))
    assert user.ssh("ssh", url, "true", identity=identity).returncode == 255
    user.says("delete", "ssh-key", str(key))
    user.says("destroy", "instance", word, "-y")


def test_variables_are_kept_masked_and_upper_case(user: Session):
    assert "created successfully" in user.says("create", "env-var", "hf_token", "abc")
    assert "Failed with error 400" in user.type("create", "env-var", "HF_TOKEN", "abc").stderr
    assert "HF_TOKEN" in user.says("show", "env-vars")
    assert "updated successfully" in user.says("update", "env-var", "HF_TOKEN", "abd")
    assert set(user.raw("show", "env-vars")) == {"HF_TOKEN"}
    assert "deleted successfully" in user.says("delete", "env-var", "HF_TOKEN")
    assert user.raw("show", "env-vars") == {}


def test_an_api_key_may_do_what_it_was_made_for_until_it_is_deleted(user: Session, tmp_path: Path):
    (tmp_path / "p.json").write_text('{"api": {"instance_read": {}}}')
    words = ["create", "api-key", "--name", "reader", "--permission_file", str(tmp_path / "p.json")]
    said = user.says(*words)
    found = re.search(r"'id': (\d+), 'key': '(\w+)'", said)
    assert found is not None
    number, token = found.groups()

    assert user.type("show", "instances", "--raw", key=token).stdout.startswith("[")
    refused = user.type("show", "user", key=token)
    assert refused.stderr == "Failed with error 403: This key may not do that.\n"
    assert "reader" in user.says("show", "api-keys")
    assert user.says("delete", "api-key", number) == "ok\n"
    assert user.type("show", "user", key=token).stderr == (
        "Failed with error 404: Invalid user key\n"
    )


def test_the_user_is_shown_without_the_key(user: Session):
    shown = user.raw("show", "user")
    assert shown["credit"] > 0
    assert user.key not in str(shown)
    assert "renter@example.com" in plain(user.says("show", "user"))


def test_bills_name_the_instance_and_the_payment(user: Session):
    number = user.rent("--ssh")
    user.wait(number)
    charges = user.raw("show", "invoices-v1", "-c")
    assert f"instance-{number}" in {row["source"] for row in charges["results"]}
    assert plain(user.says("show", "invoices-v1", "-c")).strip()
    payments = user.raw("show", "invoices-v1", "-i")
    assert payments["results"][0]["type"] == "credit"
    old = user.type("show", "invoices", "--raw")
    assert old.exit == 0
    assert str(number) in old.stdout
    assert user.raw("show", "deposit", str(number))["refundable_deposit"] == 0
    user.says("destroy", "instance", str(number), "-y")


def test_templates_are_kept_and_rented_from(user: Session):
    said = user.says(
        "create", "template", "--name", "t", "--image", "ubuntu", "--image_tag", "24.04", "--ssh",
        "--direct", "--env", "-e A=1 -p 8080:8080", "--onstart-cmd", "echo hi",
    )  # fmt: skip
    hash_id = re.search(r"'hash_id': '(\w+)'", said)
    assert hash_id is not None
    (found,) = user.raw("search", "templates", "name=t")
    assert found["hash_id"] == hash_id[1]
    offer = user.raw("search", "offers", "num_gpus=1 gpu_name=RTX_4090", "--limit", "1")[0]["id"]
    made = user.raw(
        "create", "instance", str(offer), "--template_hash", hash_id[1], "--env", "-e B=2"
    )
    row = user.row(made["new_contract"])
    assert row["image_uuid"] == "ubuntu:24.04"
    assert row["extra_env"] == {"A": "1", "-p 8080:8080": "1", "B": "2"}
    assert row["image_runtype"] == "ssh_direc ssh_proxy"
    user.says("destroy", "instance", str(made["new_contract"]), "-y")
    user.says("delete", "template", "--hash-id", hash_id[1])
    assert user.raw("search", "templates") == []


# -- what is not modelled -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("search", "volumes"),
        ("show", "volumes"),
        ("copy", "1:/a/", "2:/b/"),
        ("show", "scheduled-jobs"),
        ("prepay", "instance", "1", "10"),
        ("show", "audit-logs"),
        ("show", "connections"),
    ],
)
def test_what_is_not_modelled_is_refused_with_a_404(user: Session, words: tuple[str, ...]):
    said = user.type(*words)

    assert "no route" in said.stderr + said.stdout
    assert said.exit == 0
    assert {call["status"] for call in user.journal()[-1:]} == {404}


def test_a_bulk_create_is_refused_as_often_as_the_client_repeats_it(user: Session):
    said = user.type("create", "instances", "7001", "7002", "--image", "x")

    assert said.stdout.count("404 Client Error") == 6
    assert [call["status"] for call in user.journal()[-6:]] == [404] * 6
    assert user.raw("show", "instances", "--label", "none") == []


def test_a_wrong_key_is_told_as_the_live_service_tells_it(user: Session):
    said = user.type("show", "instances", key="wrong")

    assert (said.exit, said.stdout) == (0, "")
    assert said.stderr == "Failed with error 404: Invalid user key\n"


def test_no_request_of_the_session_met_a_bug(user: Session):
    calls = user.journal()

    assert calls
    assert [call for call in calls if call["status"] >= 500] == []
