"""The recorded runs of the official client, and the table that says which of them we answer for."""

import json
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

DATA: Final = Path(__file__).parents[1] / "data"
RUNS: Final = DATA / "official_client_requests.jsonl"
SCOPE: Final = DATA / "official_client_scope.tsv"
NO_ROUTE: Final = "404"  # the verdict on a run whose routes are not modelled


class Ask(Struct, frozen=True, kw_only=True):
    """One request as it was recorded, and what it was given."""

    method: str
    path: str  # without the query
    query: dict[str, str]
    body: Any
    status: int
    response: Any


class Run(Struct, frozen=True, kw_only=True):
    """One command line, what it sent, and our verdict on it."""

    number: int
    argv: list[str]
    asks: list[Ask]
    verdict: str  # "in", "out", or "404": out because a route of it is not modelled
    scene: str  # how the market stands when it is replayed; see `scenes`
    reason: str  # why it is out, or what is special

    @property
    def in_scope(self) -> bool:
        return self.verdict == "in"

    @property
    def looks_up_role(self) -> bool:
        """Whether the client knew no role yet and asked for the user first."""
        first = self.asks[0].path.endswith("/users/current")
        of_user = self.argv[-2:] == ["show", "user"] or "user" in self.argv
        both = len(self.asks) > 1 and self.asks[1].status == 200 and self.asks[0].status < 400
        return first and (not of_user or both)


def load() -> list[Run]:
    """Return every recorded run with its line of the table."""
    verdicts = [line.split("\t") for line in SCOPE.read_text().splitlines()[1:]]
    runs = []
    for number, line in enumerate(RUNS.read_text().splitlines()):
        recorded = json.loads(line)
        written, verdict, scene, reason, command = verdicts[number]
        assert (int(written), command) == (number, " ".join(recorded["argv"])), number
        asks = [
            Ask(
                method=ask["method"],
                path=ask["path"].partition("?")[0],
                query=ask["query"],
                body=ask["body"],
                status=ask["status"],
                response=ask["response"],
            )
            for ask in recorded["requests"]
        ]
        runs.append(
            Run(
                number=number,
                argv=recorded["argv"],
                asks=asks,
                verdict=verdict,
                scene=scene,
                reason=reason,
            )
        )
    assert len(runs) == len(verdicts)
    return runs
