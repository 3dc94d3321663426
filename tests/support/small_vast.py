"""A Vast small enough to be read: REST answers in the live form, and state that follows them.

No faults, no billing, no market: those are the simulator's. It shows that `VastProvider` fits
what VAST_API describes, independently of the simulator's reading of the same text.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from support.provider_contract import ProviderRig
from support.scripted_vast import SECRET, Answer, a_key, answer, respond
from vastd.provider.keys import Key
from vastd.provider.vast.client import VastProvider
from vastd.provider.vast.http import VastHttp

GPUS = ("RTX 3090", "RTX 4090", "A100 PCIE")


# VAST_API 3.3: as seen live.
REFUSALS = {
    "insufficient_credit": "Your account lacks credit; see the billing page.",
    "spend_rate_limit": "Your account is new: spending is limited for now.",
}


def no(status: int, code: str, msg: str, **more: Any) -> Answer:
    return answer({"success": False, "error": code, "msg": msg, **more}, status)


class SmallVast:
    """Forty offers, each of its own machine; what is asked for happens at `tick`."""

    def __init__(self) -> None:
        self._offers = {
            7000 + number: {
                "id": 7000 + number, "ask_contract_id": 7000 + number, "machine_id": 500 + number,
                "gpu_name": GPUS[number % 3], "num_gpus": 1 + number % 2, "gpu_ram": 24564,
                "dph_base": 0.2 + (number * 7 % 40) / 100, "storage_cost": 0.15,
                "min_bid": 0.1, "verification": "verified", "rentable": True,
            }
            for number in range(40)
        }  # fmt: skip
        self._instances: dict[int, dict[str, Any]] = {}
        self._keys: list[dict[str, Any]] = []
        self._next_refusal: str | None = None

    def refuse_create(self, code: str) -> None:
        """Refuse the next create with that code."""
        self._next_refusal = code

    def tick(self) -> None:
        """Let every machine become what it is meant to be."""
        for row in list(self._instances.values()):
            if row["next_state"] == "unloaded":
                del self._instances[row["id"]]
                continue
            up = row["intended_status"] == "running"
            row["actual_status"] = "running" if up else "exited"
            row["cur_state"] = row["intended_status"]
            row["ports"] = {"22/tcp": [{"HostIp": "0.0.0.0", "HostPort": "40112"}]} if up else None

    async def __call__(self, request: httpx2.Request) -> httpx2.Response:
        if request.headers["authorization"] != f"Bearer {SECRET}":
            return respond(no(404, "auth_error", "Invalid user key"))
        content = await request.aread()
        body = json.loads(content) if content else {}
        query = dict(request.url.params)
        return respond(self._route(request.method, request.url.path, query, body))

    def _route(self, method: str, path: str, query: dict[str, str], body: Any) -> Answer:
        match method, *path.strip("/").split("/"):
            case "POST", "api", "v0", "bundles":
                return self._search(body)
            case "PUT", "api", "v0", "asks", offer_id:
                return self._create(int(offer_id), body)
            case "GET", "api", "v1", "instances":
                return self._list(query)
            case "GET", "api", "v0", "users", "current":
                return answer({"id": 42, "email": "a@example.org", "credit": 12.5})
            case "GET", "api", "v0", "ssh":
                return answer(self._keys) if self._keys else no(404, "not_found", "No SSH keys")
            case "POST", "api", "v0", "ssh":
                self._keys.append({"id": 71 + len(self._keys), "public_key": body["ssh_key"]})
                return answer({"success": True, "key": self._keys[-1]})
            case "GET", "api", "v0", "instances", instance_id:
                return answer({"instances": self._instances.get(int(instance_id))})
            case _, "api", "v0", "instances", *rest:
                return self._change(method, rest, body)
        return answer(b"<html>404</html>", 404)

    def _search(self, body: dict[str, Any]) -> Answer:
        hours = body["allocated_storage"] / 720
        rows = [
            row | {"dph_total": row["dph_base"] + row["storage_cost"] * hours}
            for row in self._offers.values()
            if row["gpu_name"] == body.get("gpu_name", {}).get("eq", row["gpu_name"])
            and row["num_gpus"] <= body.get("num_gpus", {}).get("lte", 8)
        ]
        ((column, direction),) = body["order"]
        rows.sort(key=lambda row: row[column], reverse=direction == "desc")
        return answer({"offers": rows[: body["limit"]]})

    def _create(self, offer_id: int, body: dict[str, Any]) -> Answer:
        code, self._next_refusal = self._next_refusal, None
        if code is not None:
            return no(400, code, REFUSALS[code])
        offer = self._offers.pop(offer_id, None)
        if offer is None:
            msg = f"error 404/3603: no_such_ask  Instance type by id {offer_id} is not available."
            return no(400, "invalid_args", msg, ask_id=offer_id)
        instance_id = offer_id - 6000
        self._instances[instance_id] = {
            "id": instance_id, "machine_id": offer["machine_id"], "label": body["label"],
            "actual_status": None, "intended_status": "running", "cur_state": "running",
            "next_state": "running", "is_bid": body.get("price") is not None, "ports": None,
            "dph_total": offer["dph_base"], "storage_total_cost": 0.004,
            "public_ipaddr": "203.0.113.7\n", "ssh_host": "ssh4.vast.ai", "ssh_port": 21000,
            "image_uuid": body["image"], "image_runtype": body["runtype"], "extra_env": None,
        }  # fmt: skip
        return answer({"success": True, "new_contract": instance_id, "instance_api_key": "f00d"})

    def _list(self, query: dict[str, str]) -> Answer:
        limit, after = int(query["limit"]), int(query.get("after_token", "0"))
        rows = [row for number, row in sorted(self._instances.items()) if number > after]
        more = len(rows) > limit
        return answer(
            {
                "success": True,
                "instances_found": len(rows[:limit]),
                "total_instances": len(self._instances),
                "next_token": str(rows[limit - 1]["id"]) if more else None,
                "instances": rows[:limit],
            }
        )

    def _change(self, method: str, rest: list[str], body: dict[str, Any]) -> Answer:
        number = next(part for part in rest if part.isdigit())
        row = self._instances.get(int(number))
        if row is None:
            return no(404, "no_such_instance", f"Instance {number} not found")
        if method == "DELETE":
            row["next_state"] = "unloaded"
        elif "price" in body:
            row["dph_base"] = row["dph_total"] = body["price"]
        elif "label" in body:
            row["label"] = body["label"]
        elif "state" in body:
            row["intended_status"] = row["next_state"] = body["state"]
        return answer({"success": True, "msg": ""})


@asynccontextmanager
async def small_vast(vast: SmallVast | None = None) -> AsyncIterator[ProviderRig]:
    """Give `VastProvider`s on a fresh `SmallVast`, or on the one given."""
    vast = vast or SmallVast()

    def connect(key: Key) -> VastHttp:
        return VastHttp(
            key=key,
            base_url="https://vast.example",
            version="1",
            transport=httpx2.MockTransport(vast),
        )

    async def let_pass(_seconds: float) -> None:
        vast.tick()

    async with connect(a_key()) as ours, connect(a_key("f" * 64)) as theirs:
        yield ProviderRig(
            VastProvider(ours, page_interval_s=0.0),
            VastProvider(theirs),
            let_pass,
            1.0,
            1.0,
            vast.refuse_create,
        )
