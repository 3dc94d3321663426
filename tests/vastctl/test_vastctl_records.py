"""Taking the record out as one document, and comparing files of others with Vast."""

import csv
import io
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import convert

from vastctl.screen import printable
from vastd_protocol.errors import ErrorCode
from vastd_protocol.methods import daemon as daemon_wire
from vastd_protocol.methods import event, record

NOW = "2026-11-30T12:00:00Z"


# -- export --------------------------------------------------------------------------------


@pytest.fixture
def history(daemon: Any, make: Any) -> Any:
    """A daemon with two rentals on two pages, a job, five events on three pages."""
    rentals = [
        make.rental(rental_id=f"r-{n}", phase="gone", name=name)
        for n, name in ((1, "lab"), (2, "=SUM(A1)"))
    ]

    def rental_page(params: dict[str, Any]) -> record.RentalPage:
        if params.get("after") is None:
            return record.RentalPage(rentals=rentals[:1], next="r-1")
        assert params["after"] == "r-1"
        return record.RentalPage(rentals=rentals[1:])

    events = [event.EventView(cursor=n, at=NOW, kind="warned", reason=f"{n}") for n in range(1, 6)]

    def event_page(params: dict[str, Any]) -> event.EventListView:
        if params["limit"] == 1:
            return event.EventListView(events=events[-1:], cursor=5)
        page = events[params.get("after") or 0 :][:2]
        return event.EventListView(events=page, cursor=page[-1].cursor if page else 5)

    status = daemon_wire.DaemonStatusView(
        daemon=daemon_wire.DaemonInfo(version="0.3", pid=1, started_at=NOW, simulated=True),
        state_dir="/s", socket="/s/x", vast_url="http://x",
    )  # fmt: skip
    daemon.on("daemon.status", status)
    daemon.on("record.rentals", rental_page)
    daemon.on("record.jobs", record.JobPage(jobs=[make.job(state="succeeded")]))
    daemon.on("record.imported", record.ImportedPage())
    daemon.on("event.list", event_page)
    return daemon


@pytest.mark.req("CLI-14")
def test_export_is_one_document_with_everything_on_record(
    vastctl: Callable[..., Any], history: Any
) -> None:
    ran = vastctl("export")

    assert ran.code == 0
    found = json.loads(ran.out)
    assert {key: found[key] for key in ("format", "version", "exported_at", "since_s")} == {
        "format": "vastd-export", "version": 1, "exported_at": "2026-11-30T12:00:00Z",
        "since_s": None,
    }  # fmt: skip
    assert [one["rental_id"] for one in found["rentals"]] == ["r-1", "r-2"]
    assert found["rentals"][0]["cost_usd"] == 0.156
    assert [one["job_id"] for one in found["jobs"]] == ["j-1"]
    assert [one["cursor"] for one in found["events"]] == [1, 2, 3, 4, 5]
    assert found["imported"] == []
    lines = ran.out.splitlines()  # a line per record: two documents can be compared
    assert [sum(line.startswith(f'{{"{key}"') for line in lines) for key in ("job_id", "cursor")] == [
        1, 5,
    ]  # fmt: skip


def test_export_narrows_every_table_by_time(vastctl: Callable[..., Any], history: Any) -> None:
    vastctl("export", "--since", "12h")

    asked = history.asked("event.list")
    assert (asked[1]["since_s"], asked[2]["after"]) == (43_200.0, 2)
    assert history.asked("record.rentals")[0]["since_s"] == 43_200.0
    assert history.asked("record.jobs")[0]["since_s"] == 43_200.0


def test_export_writes_each_page_before_it_asks_for_the_next(
    vastctl: Callable[..., Any], history: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    page = history.handlers["event.list"]

    def watched(params: dict[str, Any]) -> Any:
        sizes.extend(path.stat().st_size for path in tmp_path.glob(".vastctl-*.part"))
        return page(params)

    history.on("event.list", watched)
    # A buffer would hide what is kept in memory.
    opened = io.open
    monkeypatch.setattr("builtins.open", lambda fd, mode: opened(fd, mode, buffering=0))

    assert vastctl("export", "--output", str(tmp_path / "out.json")).code == 0
    assert len(sizes) == 4  # the newest cursor, then three pages
    assert sizes[1:] == sorted(set(sizes))


def test_an_exported_file_is_private_and_whole_or_not_there(
    vastctl: Callable[..., Any], history: Any, tmp_path: Path, make: Any
) -> None:
    target = tmp_path / "out.json"

    ran = vastctl("--json", "export", "--output", str(target))

    assert json.loads(ran.out) == {
        "path": str(target), "rentals": 2, "jobs": 1, "events": 5, "imported": 0,
    }  # fmt: skip
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    before = target.read_bytes()
    history.in_turn("record.imported", make.refuse(ErrorCode.INTERNAL_ERROR, "disk"))
    assert vastctl("export", "--output", str(target)).code == 1
    assert (target.read_bytes(), list(tmp_path.glob("out.*"))) == (before, [target])
    assert vastctl("export", "--output", str(tmp_path / "no" / "x")).code == 1
    assert list(tmp_path.glob(".*")) == []


def test_an_export_takes_the_place_of_nothing_but_a_file(
    vastctl: Callable[..., Any], history: Any, tmp_path: Path
) -> None:
    pipe, link, dangling = tmp_path / "pipe", tmp_path / "link", tmp_path / "dangling"
    os.mkfifo(pipe)
    file, new = tmp_path / "file", tmp_path / "new"
    file.write_text("before")
    link.symlink_to(file)
    dangling.symlink_to(new)
    to_pipe = tmp_path / "to-pipe"
    to_pipe.symlink_to(pipe)

    for kind, path in (
        ("a pipe", pipe), ("a pipe", to_pipe), ("a directory", tmp_path),
        ("a device", Path("/dev/null")), ("a device", Path("/dev/full")),
    ):  # fmt: skip
        ran = vastctl("export", "--output", str(path))
        assert (ran.code, kind in ran.err) == (2, True), ran.err
    assert stat.S_ISFIFO(pipe.lstat().st_mode)
    assert stat.S_ISCHR(Path("/dev/null").lstat().st_mode)
    for where, target in ((link, file), (dangling, new)):
        assert vastctl("export", "--output", str(where)).code == 0
        assert (where.is_symlink(), json.loads(target.read_text())["version"]) == (True, 1)
    longest = tmp_path / ("x" * 255)
    assert vastctl("export", "--output", str(longest)).code == 0
    assert sorted(tmp_path.glob(".*")) == []


def test_export_to_a_dash_is_stdout(vastctl: Callable[..., Any], history: Any) -> None:
    assert vastctl("export", "--output", "-").out == vastctl("export").out
    assert vastctl("--json", "export", "--format", "csv", "--output", "-").code == 2


def test_csv_is_one_table_a_spreadsheet_can_open_without_running_it(
    vastctl: Callable[..., Any], history: Any, make: Any
) -> None:
    ran = vastctl("export", "--format", "csv")

    rows = list(csv.DictReader(io.StringIO(ran.out)))
    assert [(row["rental_id"], row["cost_usd"]) for row in rows] == [
        ("r-1", "0.156"), ("r-2", "0.156"),
    ]  # fmt: skip
    assert rows[1]["name"] == "'=SUM(A1)"
    for formula in ("+1", "-1", "@x", "\uff1dx", "  =x", "\t=x"):
        history.on("record.rentals", record.RentalPage(rentals=[make.rental(name=formula)]))
        (row,) = csv.DictReader(io.StringIO(vastctl("export", "--format", "csv").out))
        assert row["name"][0] not in "=+-@\t \uff1d", formula
    assert rows[0]["jobs"] == '["j-1"]'
    events = vastctl("export", "--format", "csv", "--table", "events")
    assert len(events.out.splitlines()) == 6
    assert vastctl("export", "--table", "events").code == 2
    one = record.ImportedView(record=record.Record(instance_id=7), source="/old", imported_at=NOW)
    history.on("record.imported", record.ImportedPage(imported=[one]))
    (row,) = csv.DictReader(
        io.StringIO(vastctl("export", "--format", "csv", "--table", "imported").out)
    )
    assert (row["instance_id"], row["source"], row["imported_at"]) == ("7", "/old", NOW)


# -- import --------------------------------------------------------------------------------

ENTRY = {
    "instance_id": 41200377, "offer_id": 40990112, "gpu_name": "RTX_4090", "num_gpus": 1,
    "dph": 0.312, "ssh_url": "", "ssh_host": "", "ssh_port": 0,
    "created_at": "2026-11-12T08:05:45Z", "status": "destroyed", "experiment": "sweep",
    "estimated_hours": 3.0, "estimated_cost": 0.936, "actual_cost": 1.01, "mine": {"x": 1},
}  # fmt: skip


@pytest.fixture
def compares(daemon: Any) -> Any:
    """A daemon for which 1 is foreign, 2 is ours, and all others have ended."""

    def verdicts(params: dict[str, Any]) -> record.ImportView:
        found = []
        for one in params["records"]:
            number = one["instance_id"]
            word = {1: "foreign", 2: "ours"}.get(number, "ended")
            kept = word == "ended" and params.get("keep", False)
            found.append(
                record.VerdictView(
                    instance_id=number, verdict=word, kept=kept, name="lab", status="running",
                    dph_usd=0.5,
                )
            )  # fmt: skip
        return record.ImportView(verdicts=found, kept=sum(v.kept for v in found))

    daemon.on("record.import", verdicts)
    return daemon


def a_file(tmp_path: Path, *entries: Any) -> Path:
    path = tmp_path / "vast-instances.json"
    path.write_text(json.dumps(list(entries)))
    return path


@pytest.mark.req("CLI-14")
def test_import_only_looks_until_it_is_told_to_keep(
    vastctl: Callable[..., Any], compares: Any, tmp_path: Path
) -> None:
    path = a_file(tmp_path, ENTRY, {**ENTRY, "instance_id": "1"}, {**ENTRY, "instance_id": 2})
    before = path.read_bytes()

    looked = vastctl("import", str(tmp_path))
    kept = vastctl("import", str(path), "-y")

    assert (looked.code, kept.code) == (0, 0)
    assert "ended: Vast lists no such instance" in looked.out
    assert "exists at Vast (running, $0.500/h); not ours: it stays as it is" in looked.out
    assert "runs as lab, vastd watches it" in looked.out
    assert "nothing was changed; `-y` takes 1 ended machine into the history" in looked.err
    assert "does not watch or end them" in looked.err
    assert "1 record taken into the history" in kept.err
    assert [sent.get("keep", False) for sent in compares.asked("record.import")] == [
        False, False, True,
    ]  # fmt: skip
    told = convert(compares.asked("record.import")[2]["records"][0], record.Record)
    assert (told.cost_usd, told.project, told.experiments) == (1.01, str(tmp_path), ["sweep"])
    assert path.read_bytes() == before


def test_import_asks_on_a_terminal(
    vastctl: Callable[..., Any], compares: Any, tmp_path: Path
) -> None:
    path = a_file(tmp_path, ENTRY)

    assert vastctl("import", str(path), tty=True, answers="n\n").code == 2
    ran = vastctl("import", str(path), tty=True, answers="y\n")

    assert "taken into the history" in ran.err
    assert [s.get("keep", False) for s in compares.asked("record.import")] == [False, False, True]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[\n {"instance_id": 1},\n {"instance_id": 2,}\n]', "line 3, column "),
        ("", "line 1, column 1"),
        ("[" * 100_000, "nested too deeply"),
        ('{"x": 1}', "neither a list of instances nor an export"),
        ('{"format": "vastd-export", "version": 9}', "version 9"),
        ("17", "neither a list"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused_with_its_place(
    vastctl: Callable[..., Any], compares: Any, tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)

    ran = vastctl("import", str(path), "-y")

    assert (ran.code, said in ran.err) == (1, True), ran.err
    assert compares.requests == []


def test_only_files_are_imported_and_nothing_that_may_never_end(
    vastctl: Callable[..., Any], compares: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    big = a_file(tmp_path, ENTRY)
    monkeypatch.setattr("vastctl.foreign_records.MAX_FILE_BYTES", 100)

    for path, kind in (
        (pipe, "a pipe"), (link, "a pipe"), ("/dev/zero", "a device"), ("/dev/null", "a device"),
    ):  # fmt: skip
        ran = vastctl("import", str(path), "-y")
        assert (ran.code, f"is {kind}, not a file" in ran.err) == (2, True), ran.err
    ran = vastctl("import", str(big), "-y")
    assert (ran.code, "larger than 100 bytes" in ran.err) == (1, True), ran.err
    assert compares.requests == []


HOSTILE = ("a\nb", "a\tb", "\x1b[2Jx", "\x9b31mx", "a\r", "\u202egpj", "\x00", "a\u2028b")


@pytest.mark.parametrize("text", HOSTILE)
def test_texts_of_a_file_are_made_harmless_before_they_are_sent_or_shown(
    vastctl: Callable[..., Any], compares: Any, tmp_path: Path, text: str
) -> None:
    entry = {**ENTRY, "status": text, "label": text, "gpu_name": text, "experiment": text}
    path = a_file(tmp_path, entry)

    ran = vastctl("import", str(path), "-y", tty=True)

    sent = convert(compares.asked("record.import")[1]["records"][0], record.Record)
    for told in (sent.status, sent.label, sent.gpu_name, *sent.experiments):
        assert told is not None
        assert told.isprintable()
    assert len(ran.out.splitlines()) == 2
    assert printable(ran.out) == ran.out


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("tty", [True, False])
def test_texts_on_record_are_made_harmless_in_tables_csv_and_json(
    vastctl: Callable[..., Any], daemon: Any, text: str, tty: bool
) -> None:
    one = record.ImportedView(
        record=record.Record(instance_id=7, name=text, experiments=[text]), source=text,
        imported_at=NOW,
    )  # fmt: skip
    daemon.on("record.imported", record.ImportedPage(imported=[one]))

    table = vastctl("import", "--list", tty=tty)
    sheet = vastctl("export", "--format", "csv", "--table", "imported", tty=tty)
    document = vastctl("--json", "import", "--list", tty=True)

    for ran in (table, sheet, document):
        assert printable(ran.out) == ran.out
    assert len(table.out.split("\n")) == 3
    assert len(sheet.out.split("\n")) == 3
    assert json.loads(document.out)["imported"][0]["record"]["name"] == text


@pytest.mark.parametrize(
    "entry",
    [
        {"instance_id": 2**53}, {"instance_id": 10**30}, {"instance_id": -1}, {"instance_id": 1.5},
        {"offer_id": 2**60}, {"created_at": "9999-12-31"}, {"created_at": "0001-01-01T00:00:00Z"},
        {"created_at": "yesterday"}, {"created_at": "2026-13-45"}, {"destroyed_at": "\x1b[2J"},
        {"created_at": "2026-11-12T08:05:45Z" + " " * 600}, {"actual_cost": 1e300},
        {"actual_cost": -5}, {"dph": float("nan")}, {"num_gpus": 10**9},
    ],
)  # fmt: skip
def test_ids_dates_and_numbers_that_cannot_be_meant_are_left_out(
    vastctl: Callable[..., Any], compares: Any, tmp_path: Path, entry: dict[str, Any]
) -> None:
    path = a_file(tmp_path, {**ENTRY, **entry}, {**ENTRY, "instance_id": 9})

    assert vastctl("import", str(path), "-y").code == 0

    *others, _plain = compares.asked("record.import")[0]["records"]
    (key,) = entry
    sent_as = {"destroyed_at": "ended_at", "actual_cost": "cost_usd", "dph": "dph_usd"}
    assert [one.get(sent_as.get(key, key)) for one in others] in ([None], [])


def test_a_file_is_taken_in_whole_or_not_at_all(
    vastctl: Callable[..., Any], compares: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vastctl.commands.import_.CHUNK", 2)
    ids = (1, 2, 10, 11, 12, 13, 14)
    path = a_file(tmp_path, *({**ENTRY, "instance_id": n} for n in ids))

    ran = vastctl("--json", "import", str(path), "-y")

    asked = [one for one in compares.asked("record.import") if one.get("keep")]
    sent = [[record["instance_id"] for record in one["records"]] for one in asked]
    assert sent == [[10, 11], [12, 13], [14]]  # what has not ended is not sent again
    assert [one.get("more", 0) for one in asked] == [3, 1, 0]
    told = json.loads(ran.out)
    assert [(v["instance_id"], v["verdict"]) for v in told["verdicts"]] == [
        (n, {1: "foreign", 2: "ours"}.get(n, "ended")) for n in ids
    ]
    assert told["kept"] == 5


def test_one_bad_entry_costs_only_itself(
    vastctl: Callable[..., Any], compares: Any, tmp_path: Path
) -> None:
    path = a_file(
        tmp_path, "x", {"gpu_name": "A"}, {**ENTRY, "instance_id": True}, ENTRY, ENTRY,
        {**ENTRY, "instance_id": 9, "dph": "much", "num_gpus": -1, "created_at": 7, "status": None},
    )  # fmt: skip

    ran = vastctl("import", str(path), "-y")

    assert ran.code == 0
    for said in ("entry 1 is no object", "entry 2 has no instance_id", "entry 3 has no instance_id",
                 "entry 5: instance 41200377 is there twice"):  # fmt: skip
        assert said in ran.err
    sent = compares.asked("record.import")[1]["records"]
    assert [one["instance_id"] for one in sent] == [41200377, 9]
    assert {"dph_usd", "num_gpus", "created_at", "status"} & set(sent[1]) == set()


def test_an_export_of_elsewhere_can_be_imported(
    vastctl: Callable[..., Any], compares: Any, history: Any, tmp_path: Path
) -> None:
    path = tmp_path / "out.json"
    vastctl("export", "--output", str(path))

    ran = vastctl("--json", "import", str(path), "-y")

    # Both rentals had the same instance; the second one is left out.
    assert json.loads(ran.out)["kept"] == 1
    sent = convert(compares.asked("record.import")[1]["records"][0], record.Record)
    assert (sent.rental_id, sent.status, sent.cost_usd) == ("r-1", "gone", 0.156)


def test_imported_records_can_be_listed(vastctl: Callable[..., Any], daemon: Any) -> None:
    one = record.ImportedView(
        record=record.Record(instance_id=7, gpu_name="RTX_4090", cost_usd=1.5),
        source="/old/vast-instances.json", imported_at=NOW,
    )  # fmt: skip
    daemon.in_turn(
        "record.imported",
        record.ImportedPage(imported=[one], next="7"),
        record.ImportedPage(imported=[one]),
    )

    ran = vastctl("import", "--list")

    assert ran.out.splitlines()[1].split()[:4] == ["7", "-", "RTX_4090", "$1.50"]
    assert len(ran.out.splitlines()) == 3
    assert vastctl("import").code == 2
    assert vastctl("import", "x", "--list").code == 2
    assert vastctl("import", "/no/such").code == 2
