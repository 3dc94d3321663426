"""What the benchmarks print: ratios, verdicts and one table, without measuring anything."""

import pytest
from msgspec import json

from bench.report import Row, document, machine, table
from bench.run_overhead import overhead
from bench.timing import in_turn


def test_a_limit_with_a_peer_is_on_the_ratio_and_without_one_on_our_figure():
    assert Row(what="x", ours=3.0, peer=2.0, peer_what="p", limit=1.6).met is True
    assert Row(what="x", ours=3.4, peer=2.0, peer_what="p", limit=1.6).met is False
    assert Row(what="x", ours=61.0, unit="MB", limit=60.0).met is False
    assert Row(what="x", ours=0.0, unit="", limit=0.0).met is True


def test_how_many_times_faster_is_the_peer_against_ours():
    row = Row(what="x", ours=50.0, peer=500.0, peer_what="p", faster=True, limit=8.0, at_least=True)

    assert (row.ratio, row.met) == (10.0, True)


def test_what_was_not_measured_has_no_verdict_and_says_why():
    row = Row(what="ls", note="no vastai", peer_what="vastai", limit=8.0, at_least=True)

    assert (row.ratio, row.met) == (None, None)
    assert "not measured: no vastai" in table([row])


def test_the_table_shows_each_row_with_ratio_limit_and_verdict_in_straight_columns():
    rows = [
        Row(what="first", ours=3.0, peer=2.0, peer_what="peer", limit=1.3),
        Row(what="second, longer", ours=45.13, unit="MB", limit=60.0),
    ]

    assert table(rows).splitlines() == [
        "| what           | ours    | peer      | ratio | limit   | met |",
        "|----------------|---------|-----------|-------|---------|-----|",
        "| first          | 3 ms    | 2 ms peer | 1.50  | ≤ 1.3 x | no  |",
        "| second, longer | 45.1 MB |           |       | ≤ 60 MB | yes |",
    ]


def test_the_document_for_programs_holds_rows_with_verdicts_and_the_size_of_the_machine():
    row = Row(what="x", ours=3.0, peer=2.0, peer_what="p", limit=1.6)

    found = json.decode(json.encode(document([row], quick=True)))

    assert (found["machine"], found["quick"]) == (machine(), True)
    assert found["rows"][0] | {"what": "x", "ratio": 1.5, "met": True} == found["rows"][0]


def test_measures_are_taken_in_turn_after_a_warm_up_and_given_as_medians():
    order: list[str] = []
    ours, peer = iter([100.0, 1.0, 9.0, 2.0]), iter([100.0, 4.0, 4.0, 4.0])

    def take(name, values):
        order.append(name)
        return next(values)

    found = in_turn(lambda: take("A", ours), lambda: take("B", peer), runs=3)

    assert found == [2.0, 4.0]
    assert "".join(order) == "AB" * 4


def test_the_overhead_of_a_run_leaves_out_vast_the_job_the_proof_and_the_pause_for_a_key():
    events = [
        ("job_submitted", 1.0), ("create_sent", 1.5), ("create_confirmed", 2.0),
        ("instance_running", 9.0), ("key_attached", 9.25), ("became_ready", 10.5),
        ("job_started", 11.0), ("job_began", 11.0), ("job_finished", 50.0), ("collected", 50.25),
        ("destroy_tried", 50.5), ("found_absent", 60.0),
    ]  # fmt: skip

    assert overhead(events, 0.0, 60.5) == pytest.approx(
        {
            "job_submitted": 1.0, "create_sent": 0.5, "key_attached": 0.25, "became_ready": 0.25,
            "job_started": 0.5, "collected": 0.25, "destroy_tried": 0.25, "end": 0.5,
        }
    )  # fmt: skip
