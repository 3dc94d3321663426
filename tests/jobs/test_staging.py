"""Placing files in a destination that several collections share."""

from pathlib import Path

import pytest

from vastd.errors import TransferFailed, UnsafePath
from vastd.jobs.placement import INCOMING, Placement


async def put(placement: Placement, name: str, text: str) -> None:
    staged = placement.staging / "0"
    staged.write_text(text)
    await placement.place(staged, name)


async def test_two_collections_into_one_project_do_not_disturb_each_other(tmp_path: Path) -> None:
    first, second = Placement(tmp_path, "before-j1"), Placement(tmp_path, "before-j2")
    first.prepare()
    second.prepare()

    await put(first, "results/a", "first")
    first.finish()
    second.check_space(1)
    await put(second, "results/b", "second")
    second.finish()

    assert (tmp_path / "results/a").read_text() == "first"
    assert (tmp_path / "results/b").read_text() == "second"
    assert not (tmp_path / INCOMING).exists()


async def test_a_staging_area_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / INCOMING).symlink_to(tmp_path / "elsewhere")

    with pytest.raises(UnsafePath, match="is a link"):
        Placement(tmp_path, "before-j1").prepare()


async def test_a_staging_area_that_is_gone_is_a_failed_transfer(tmp_path: Path) -> None:
    placement = Placement(tmp_path, "before-j1")
    placement.prepare()
    placement.finish()

    with pytest.raises(TransferFailed):
        placement.check_space(1)
