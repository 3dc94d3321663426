"""How long a boot may last: by image and bandwidth, by progress, and never for ever (CASES 46)."""

import pytest
from msgspec import structs

from support.builders import LIMITS, T0, a_rental, a_row, a_watch
from support.offer_builders import an_offer
from vastd.core import boot_watchdogs
from vastd.core.alarms import Watch
from vastd.core.boot_watchdogs import boot_ends_at, boot_limit, boot_overdue
from vastd.core.image_sizes import SIZES, ImageSize, size_of
from vastd.core.limits import Limits
from vastd.core.observed import Sighting
from vastd.core.rental import Order, Phase, Rental

DEVEL = "pytorch/pytorch:2.6.0-cuda12.6-cudnn9-devel"  # 8 GB in the table


def booting(image: str = DEVEL, down: float | None = 100.0) -> Rental:
    order = Order(offer=an_offer(7, inet_down_mbps=down), image=image, disk_gb=50.0)
    return a_rental(Phase.BOOTING, order=order)


def watch(rental: Rental, **seen: object) -> Watch:
    row = a_row("loading", status_msg="Pulling")
    return a_watch(rental, seen=Sighting(instance=row, **seen))  # type: ignore[arg-type]


@pytest.mark.req("WAI-04")
@pytest.mark.parametrize(
    ("image", "down", "seconds"),
    [
        ("my/own:1", 100.0, 600.0),  # size not known
        (DEVEL, None, 600.0),  # bandwidth not known
        (DEVEL, 0.0, 600.0),
        (DEVEL, 1000.0, 600.0),  # 8 x 8000 / 1000 x 2 = 128
        (DEVEL, 100.0, 1280.0),
        (DEVEL, 10.0, 1800.0),
        ("ubuntu:22.04", 10.0, 600.0),
    ],
)
def test_the_limit_is_twice_the_pull_within_ten_minutes_and_half_an_hour(
    image: str, down: float | None, seconds: float
) -> None:
    assert boot_limit(booting(image, down), LIMITS).seconds == seconds


def test_the_limit_scales_with_the_setting() -> None:
    limits = Limits(boot_timeout_s=60.0)

    assert boot_limit(booting(DEVEL, 10.0), limits).seconds == 180.0
    assert boot_limit(booting("my/own:1"), limits).seconds == 60.0


def test_the_reason_tells_how_the_limit_came_about() -> None:
    alarm = boot_overdue(watch(booting()))

    assert alarm is not None
    assert alarm.at == T0 + 1280
    assert alarm.action.why == (
        f"not running after 1280 s: loading Pulling ({DEVEL} is about 8 GB (guess by its name), "
        "640 s at the host's 100 Mb/s; twice that, within 600 and 1800 s)"
    )
    (dog,) = (d for d in boot_watchdogs.BOOT_DOGS if d.name == "boot_overdue")
    assert dog.limit(watch(booting())).startswith("1280 s (")


@pytest.mark.parametrize(
    ("moved_after", "ends_after"),
    [(None, 600.0), (0.0, 600.0), (299.0, 600.0), (301.0, 601.0), (900.0, 1200.0),
     (3299.0, 3599.0), (3500.0, 3600.0), (9000.0, 3600.0)],
)  # fmt: skip
def test_progress_extends_the_boot_by_half_a_limit_each_time_up_to_an_hour(
    moved_after: float | None, ends_after: float
) -> None:
    moved = None if moved_after is None else T0 + moved_after

    assert boot_ends_at(booting("my/own:1"), Sighting(status_moved_at=moved), LIMITS) == (
        T0 + ends_after
    )


def test_an_extended_boot_says_so() -> None:
    alarm = boot_overdue(watch(booting("my/own:1"), status_moved_at=T0 + 900))

    assert alarm is not None
    assert alarm.action.why.startswith("not running after 1200 s: loading Pulling (600 s, ")
    assert "longer because it moved until" in alarm.action.why


def test_progress_never_shortens_the_limit_of_a_large_image() -> None:
    seen = Sighting(status_moved_at=T0 + 310)

    assert boot_ends_at(booting(), seen, LIMITS) == T0 + 1280


@pytest.mark.req("WAI-05")
def test_an_unseen_status_is_warned_about_once_and_by_name() -> None:
    row = a_row("a word of next year")
    seen = Sighting(instance=row, status_moved_at=T0 + 40)
    alarm = boot_watchdogs.unknown_status(a_watch(booting(), seen=seen))

    assert alarm is not None
    assert (alarm.at, alarm.action.why.split("'")[1]) == (T0 + 40, "a word of next year")
    told = a_rental(Phase.BOOTING, warned=frozenset({"unknown_status"}))
    assert boot_watchdogs.unknown_status(a_watch(told, seen=seen)) is None
    for word in (None, "loading", "running"):
        known = Sighting(instance=a_row(word), status_moved_at=T0)
        assert boot_watchdogs.unknown_status(a_watch(booting(), seen=known)) is None


@pytest.mark.parametrize(
    ("image", "gb"),
    [
        (DEVEL, 8.0),
        ("docker.io/pytorch/pytorch:2.7.1-cuda12.8-cudnn9-runtime", 4.0),
        ("nvidia/cuda:12.4.1-cudnn-devel-ubuntu22.04", 5.0),
        ("nvcr.io/nvidia/pytorch:24.10-py3", 10.0),
        ("vllm/vllm-openai", 10.0),
        ("my/pytorch-thing:1", None),
        ("ubuntu", 0.1),
    ],
)
def test_an_image_has_the_size_of_its_family_or_none(image: str, gb: float | None) -> None:
    found = size_of(image)

    assert (found.gb if found else None) == gb


def test_every_size_is_a_size_and_names_its_source() -> None:
    def sound(row: ImageSize) -> bool:
        return 0 < row.gb < 50 and bool(row.source)

    assert all(map(sound, SIZES))


def test_a_crooked_limit_is_not_taken_for_progress_by_rounding() -> None:
    why = boot_limit(booting(DEVEL, 97.3), LIMITS).why  # 1,315.52 s: no sum with it is exact

    for part in range(200):
        rental = structs.replace(booting(DEVEL, 97.3), phase_since=T0 + part * 0.0137)
        alarm = boot_overdue(watch(rental))

        assert alarm is not None
        assert alarm.action.why == f"not running after 1316 s: loading Pulling ({why})"
