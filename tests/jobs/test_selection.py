"""What of a project is sent, and what stays home."""

import os
from pathlib import Path

import pytest

from jobs.transfer_rig import write_tree
from vastd.errors import InvalidRequest, TransferFailed
from vastd.jobs import selection as selection_module
from vastd.jobs.port import ProjectSource
from vastd.jobs.selection import MAX_PROJECT_BYTES, Selection, select


async def chosen(root: Path, **options: list[str]) -> set[str]:
    return {file.path for file in (await pick(root, **options)).files}


async def pick(root: Path, **options: list[str]) -> Selection:
    return await select(ProjectSource(root=root, **options))


@pytest.mark.req("SYN-02")
async def test_version_control_caches_environments_data_and_weights_stay(tmp_path: Path) -> None:
    write_tree(
        tmp_path,
        {
            "train.py": "", "conf/a.yaml": "", "src/pkg/data/__init__.py": "", "src/pkg/data/io.py": "",
            ".git/config": "", "sub/.git": "gitdir: ..", "src/__pycache__/a.pyc": "", "x.pyc": "",
            "node_modules/a.js": "", "my-env/pyvenv.cfg": "", "my-env/bin/python": "",
            "conda/conda-meta/h": "", "conda/bin/x": "", "data/d.csv": "", "src/data/d.csv": "",
            "wandb/run": "", "outputs/o": "", "results/old.json": "", "model.pt": "", "M.SafeTensors": "",
            "w.gguf": "", "a.bin": "", "pkg.egg-info/PKG": "", "cache/CACHEDIR.TAG": "", "cache/c": "",
            "vast-instances.json": "", ".vastd-incoming/x": "",
        },
    )  # fmt: skip

    found = await chosen(tmp_path)

    # A worktree's .git is a small file naming a directory; it is not version control's data.
    assert found - {"sub/.git"} == {
        "train.py", "conf/a.yaml", "src/pkg/data/__init__.py", "src/pkg/data/io.py",
    }  # fmt: skip


async def test_the_list_is_sorted_and_says_size_mode_and_time(tmp_path: Path) -> None:
    write_tree(tmp_path, {"b.sh": "12345", "a/z.py": "1", "a.py": "22"})
    (tmp_path / "b.sh").chmod(0o750)
    os.utime(tmp_path / "b.sh", (1, 1_700_000_000))

    files = (await pick(tmp_path)).files

    assert [file.path for file in files] == ["a.py", "a/z.py", "b.sh"]
    assert (files[2].bytes, files[2].mode, files[2].mtime) == (5, 0o750, 1_700_000_000)


async def test_ignore_files_hold_below_their_directory_and_the_nearest_has_the_last_word(
    tmp_path: Path,
) -> None:
    write_tree(
        tmp_path,
        {
            ".gitignore": "*.tmp\n/only-root.txt\nbuilt/\n",
            "a.tmp": "", "only-root.txt": "", "built/x.py": "", "sub/only-root.txt": "",
            "sub/.gitignore": "!keep.tmp\nlocal.py\n",
            "sub/a.tmp": "", "sub/keep.tmp": "", "sub/local.py": "", "local.py": "",
            "sub/deep/local.py": "",
        },
    )  # fmt: skip

    assert await chosen(tmp_path) == {
        ".gitignore", "local.py", "sub/.gitignore", "sub/keep.tmp", "sub/only-root.txt",
    }  # fmt: skip


async def test_a_line_in_an_ignore_file_that_is_no_pattern_matches_nothing(tmp_path: Path) -> None:
    write_tree(tmp_path, {".gitignore": "!\n\\\n*.tmp\n", "a.tmp": "", "a.py": ""})

    assert await chosen(tmp_path) == {".gitignore", "a.py"}


async def test_vastdignore_adds_and_takes_back_after_gitignore(tmp_path: Path) -> None:
    write_tree(
        tmp_path,
        {".gitignore": "*.npz\n", ".vastdignore": "docs/\n!small.npz\n", "small.npz": "",
         "big.npz": "", "docs/a.md": "", "a.py": ""},
    )  # fmt: skip

    found = await chosen(tmp_path)

    assert found == {".gitignore", ".vastdignore", "small.npz", "a.py"}


async def test_what_is_excluded_by_the_user_stays_and_what_is_included_goes(tmp_path: Path) -> None:
    write_tree(
        tmp_path,
        {"a.py": "", "notes/n.md": "", "data/tiny.csv": "", "data/big.csv": "", "w/last.pt": "",
         "w/first.pt": "", ".git/x.pt": ""},
    )  # fmt: skip

    found = await chosen(tmp_path, exclude=["notes/"], include=["data/tiny.csv", "last.pt", "x.pt"])

    # A bare name does not reach into an excluded tree.
    assert found == {"a.py", "data/tiny.csv", "w/last.pt"}


@pytest.mark.req("SYN-08")
async def test_secrets_stay_and_are_reported_unless_the_file_itself_is_named(
    tmp_path: Path,
) -> None:
    write_tree(
        tmp_path,
        {
            "a.py": "", ".env": "", "conf/prod.env": "", "key.pem": "", ".ssh/config": "",
            ".aws/credentials": "", "conf/api_key.txt": "",
            "sa.json": '{"type": "service_account", "x": 1}',
            "notes.txt": "x\n-----BEGIN OPENSSH PRIVATE KEY-----\nabc",
            ".gitignore": ".env\n",
        },
    )  # fmt: skip

    plain = await pick(tmp_path)
    named = await pick(tmp_path, include=[".env", "conf/", "*", ".aws/*"])

    assert {file.path for file in plain.files} == {"a.py", ".gitignore"}
    assert plain.secrets_kept == [
        ".aws/credentials", ".env", ".ssh/config", "conf/api_key.txt", "conf/prod.env", "key.pem",
        "notes.txt", "sa.json",
    ]  # fmt: skip
    # Naming a directory above it, or everything, is not naming the secret.
    assert ".env" in {file.path for file in named.files}
    assert set(plain.secrets_kept) - {".env"} == set(named.secrets_kept)


async def test_links_go_as_copies_of_what_goes_and_never_lead_out(tmp_path: Path) -> None:
    root = write_tree(
        tmp_path / "p",
        {"real/a.py": "a", "real/deep/b.py": "b", ".env": "T=1", "data/d.csv": "d"},
    )
    write_tree(tmp_path, {"outside/secret.txt": "s"})
    for name, target in {
        "file-link.py": "real/a.py", "dir-link": "real", "secret-link.txt": ".env",
        "data-link.csv": "data/d.csv", "out-file": "../outside/secret.txt", "out-dir": "../outside",
        "dangling": "nowhere", "loop": "loop", "real/up": "..", "abs": str(root / "real/a.py"),
    }.items():  # fmt: skip
        (root / name).symlink_to(target)

    found = await pick(root)

    assert {file.path for file in found.files} == {
        "real/a.py", "real/deep/b.py", "file-link.py", "dir-link/a.py", "dir-link/deep/b.py", "abs",
    }  # fmt: skip
    assert all(file.source.is_relative_to(root) for file in found.files)


async def test_special_files_are_left_out_and_empty_directories_remembered(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.py": "", "results/old.json": ""})
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "logs").mkdir()
    (tmp_path / "data" / "cache").mkdir(parents=True)

    found = await pick(tmp_path)

    assert [file.path for file in found.files] == ["a.py"]
    # Earlier results stay, but a job that writes into results/ finds the directory.
    assert found.empty_dirs == ["logs", "results"]


async def test_a_project_of_three_gigabytes_is_refused_with_its_biggest_directories(
    tmp_path: Path,
) -> None:
    for name, size in {"big/a.raw": MAX_PROJECT_BYTES - 1000, "small/b.raw": 1000}.items():
        path = tmp_path / name
        path.parent.mkdir()
        with path.open("wb") as file:
            file.truncate(size)  # a sparse file: no disk is used

    with pytest.raises(TransferFailed, match=r"3\.0 GB.*big/ 3\.0 GB, small/") as caught:
        await pick(tmp_path)

    assert "vastdignore" in caught.value.hint
    (tmp_path / "small/b.raw").unlink()
    assert await chosen(tmp_path) == {"big/a.raw"}


async def test_what_cannot_be_read_or_is_no_directory_is_said_so(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.py": ""})

    with pytest.raises(InvalidRequest):
        await pick(tmp_path / "a.py")
    with pytest.raises(InvalidRequest):
        await pick(tmp_path, exclude=["!"])


async def test_a_name_that_is_no_utf8_is_kept_byte_for_byte(tmp_path: Path) -> None:
    try:
        (tmp_path / os.fsdecode(b"caf\xe9.py")).write_bytes(b"")
    except OSError:
        pytest.skip("this file system takes only UTF-8")

    assert [os.fsencode(path) for path in await chosen(tmp_path)] == [b"caf\xe9.py"]


def test_the_walk_yields_between_directories() -> None:
    # A project of 100,000 files must not hold up the watchdogs.
    assert "checkpoint" in Path(selection_module.__file__).read_text()


async def test_logs_that_were_brought_home_are_not_sent_to_the_next_machine(tmp_path: Path) -> None:
    for name in ("logs/jwv63ner.log", "logs/june.log", "logs/train.log", "sub/logs/jwv63ner.log"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")

    sent = {entry.path for entry in (await select(ProjectSource(root=tmp_path))).files}

    assert sent == {"logs/june.log", "logs/train.log", "sub/logs/jwv63ner.log"}
