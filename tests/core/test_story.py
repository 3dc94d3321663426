"""Every event: one tag, one sentence of its own, and bytes that decode to itself."""

import msgspec
import pytest

from support.builders import JOB_ID, RENTAL_ID, T0, sample, samples
from vastd.core import events as ev
from vastd.core import story
from vastd.core.rental import Phase, Rental, Trigger

ALL_KINDS = (*ev.RENTAL_EVENTS, *ev.JOB_EVENTS, *ev.DAEMON_EVENTS)


def test_there_is_a_sample_of_every_event_so_that_none_is_forgotten_here() -> None:
    assert {type(event) for event in samples()} == set(ALL_KINDS)


def test_tags_are_unique_and_say_the_name_of_the_class() -> None:
    tags = [kind.__struct_config__.tag for kind in ALL_KINDS]

    assert len(set(tags)) == len(tags)
    for kind, tag in zip(ALL_KINDS, tags, strict=True):
        assert str(tag).replace("_", "") == kind.__name__.lower()


@pytest.mark.parametrize("event", samples(), ids=ev.kind)
def test_an_event_is_stored_and_read_back_whole(event: ev.Event) -> None:
    assert ev.from_bytes(ev.to_bytes(event)) == event


@pytest.mark.parametrize("event", samples(), ids=ev.kind)
def test_every_event_has_a_sentence_of_its_own(event: ev.Event) -> None:
    line = story.tell(event)

    assert line.text
    assert "\n" not in line.text
    assert line.text != ev.kind(event).replace("_", " ") or isinstance(event, ev.CancelAsked)
    assert line.severity in ("info", "warning", "error")
    msgspec.json.encode(line)  # its numbers are fit for programs


def test_sentences_differ_from_each_other() -> None:
    texts = [story.tell(event).text for event in samples()]

    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize(
    ("event", "severity"),
    [
        (sample(ev.Warned, watchdog="destroy_unconfirmed"), "error"),
        (sample(ev.Warned, watchdog="boot_warn"), "warning"),
        (sample(ev.EndDecided, trigger=Trigger.JOB_DONE), "info"),
        (sample(ev.EndDecided, trigger=Trigger.BUDGET), "warning"),
        (sample(ev.NotCollected, final=False), "warning"),
        (sample(ev.NotCollected, final=True), "error"),
        (sample(ev.JobFinished, state="succeeded"), "info"),
        (sample(ev.Collected, missing=[]), "info"),
        (sample(ev.Resurfaced), "error"),
        (sample(ev.DestroyTried, accepted=False, error="no answer"), "warning"),
    ],
)
def test_what_costs_money_or_results_is_grave(event: ev.Event, severity: str) -> None:
    assert story.tell(event).severity == severity


def test_an_event_of_an_older_vastd_decodes_without_the_fields_added_since() -> None:
    old = b'{"kind":"end_decided","rental_id":"r1","at":1.0,"trigger":"user","why":"x"}'

    event = ev.from_bytes(old)

    assert event == ev.EndDecided(rental_id="r1", at=1.0, trigger=Trigger.USER, why="x")
    assert (event.force, event.collect) == (False, True)  # type: ignore[union-attr]


def test_an_event_of_a_newer_vastd_decodes_with_fields_unknown_here() -> None:
    body = ev.to_bytes(sample(ev.InstanceRunning)).replace(b"}", b',"colour":"blue"}')

    assert ev.from_bytes(body) == sample(ev.InstanceRunning)


def test_a_row_of_an_older_vastd_decodes_without_the_fields_added_since() -> None:
    old = (
        b'{"rental_id":"r1","name":"lab","label":"x","created_at":1.0,"phase_since":1.0,'
        b'"order":{"offer":{"offer_id":1,"machine_id":2,"gpu_name":"RTX 3090","num_gpus":1,'
        b'"gpu_ram_mb":24576,"dph":100},"image":"i","disk_gb":50.0},"policy":{}}'
    )

    rental = msgspec.json.decode(old, type=Rental)

    assert (rental.phase, rental.ending, rental.rates) == (Phase.PLANNED, None, ())


@pytest.mark.parametrize("body", [b"", b"{}", b'{"kind":"unheard_of","at":1}', b"[1]"])
def test_what_is_no_event_is_refused(body: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        ev.from_bytes(body)


def test_events_name_what_they_are_about() -> None:
    for event in samples():
        if isinstance(event, ev.RentalEvent):
            assert event.rental_id == RENTAL_ID
        elif isinstance(event, ev.JobEvent):
            assert event.job_id == JOB_ID
        assert event.at == T0
