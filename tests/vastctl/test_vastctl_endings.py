"""`explain --endings`: the table that decides every ending, as the daemon tells it."""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from vastd.core.endings import ENDINGS, Situation
from vastd.rpc.handlers import policies
from vastd_protocol.methods.policy import EndingsParams, EndingsView


def the_table() -> EndingsView:
    async def ask() -> EndingsView:
        return await policies.table(SimpleNamespace(), EndingsParams())  # type: ignore[arg-type]

    return trio.run(ask)


def test_the_daemon_tells_every_cell_with_its_reason() -> None:
    view = the_table()

    assert view.situations == [str(one) for one in Situation]
    assert [one.trigger for one in view.endings] == [str(trigger) for trigger in ENDINGS]
    for one, row in zip(view.endings, ENDINGS.values(), strict=True):
        assert [
            (cell.situation, view.outcomes[cell.outcome], cell.why) for cell in one.rulings
        ] == [
            (str(situation), row[situation].outcome.value, row[situation].why)
            for situation in Situation
        ]


def test_explain_prints_the_whole_table(vastctl: Callable[..., Any], daemon: Any) -> None:
    view = the_table()
    daemon.on("policy.endings", view)

    ran = vastctl("explain", "--endings")

    lines = ran.out.splitlines()
    assert ran.code == 0
    start = next(i for i, line in enumerate(lines) if line.startswith("END REASON"))
    rows = [line.split() for line in lines[start + 1 : start + 1 + len(view.endings)]]
    assert rows == [[one.trigger, *(cell.outcome for cell in one.rulings)] for one in view.endings]
    assert all(cell.why in ran.out for one in view.endings for cell in one.rulings)
    assert all(one.when in ran.out for one in view.endings)
    assert all(meaning in ran.out for meaning in view.outcomes.values())
    assert max(map(len, lines)) <= 100


def test_with_json_it_is_the_answer_unchanged(vastctl: Callable[..., Any], daemon: Any) -> None:
    daemon.on("policy.endings", the_table())

    told = json.loads(vastctl("explain", "--endings", "--json").out)

    assert {one["trigger"] for one in told["endings"]} == {str(trigger) for trigger in ENDINGS}


@pytest.mark.parametrize("words", [("r-1",), ("--all",)])
def test_it_is_about_no_machine_in_particular(
    vastctl: Callable[..., Any], daemon: Any, words: tuple[str, ...]
) -> None:
    ran = vastctl("explain", "--endings", *words)

    assert ran.code == 2
    assert "every machine" in ran.err
