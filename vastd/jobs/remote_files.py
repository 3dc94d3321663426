"""Looking at files on a machine through its shell: lists, sizes, checksums, removal.

Names travel as NUL-separated bytes on standard input and come back in the same order, so no
name, however strange, can be mistaken for another or for an option.
"""

import re
import shlex
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from vastd.errors import RemoteCommandFailed
from vastd.jobs.paths import check_remote_name
from vastd.jobs.remote_shell import Answer, RemoteShell

LIST_TIMEOUT_S: Final = 120.0  # guess: a million files on a slow disk
HASH_BYTES_PER_S: Final = 50_000_000  # a slow network disk; only bounds the wait
_LOOKS: Final = 3  # a file may vanish between finding it and asking for its size
LIST_LIMIT_BYTES: Final = 64 * 1024 * 1024  # about a million names; more is refused as cut off
_SHA256: Final = re.compile(rb"[0-9a-f]{64}")

# Regular files, and links to regular files as copies; links to directories are followed only
# where they were named, so that a link to / cannot drag the whole machine home.
_FIND: Final = (
    'cd "$1" || exit 3; for start in {words}; do [ -e "$start" ] || continue; '
    'find -H "$start" \\( -type f -o -type l -exec test -f {{}} \\; \\) -print0; done'
)
_STAT: Final = 'cd "$1" && xargs -0 stat -L -c "%s %Y" --'
_SUMS: Final = 'cd "$1" && xargs -0 -n 1 sh -c \'sha256sum <"$0" || echo gone\''
# sha256sum writes line by line, each one a packet to decrypt here; cut collects them (measured:
# 2,000 sums cost the daemon 0.2 s without it). 65: an escaped name puts a backslash before the sum.
_SUMS_BATCH: Final = 'cd "$1" && xargs -0 sha256sum -- | cut -b 1-65'


class RemoteFile(Struct, frozen=True, kw_only=True):
    """A file on the machine; `name` is relative to the directory that was listed."""

    name: bytes
    bytes: int
    mtime: int  # the machine's clock, whole seconds


async def list_files(shell: RemoteShell, root: str, words: Sequence[str]) -> list[RemoteFile]:
    """Return the regular files under `root`, at and below `words`, by name, each once.

    `words` are relative paths in shell syntax, made by `shell_glob`; one that matches nothing
    gives nothing, and so does a root that does not exist.

    Raises:
        UnsafePath: the machine names a file outside.
        RemoteCommandFailed: the files cannot be listed, or change faster than that.
    """
    for _ in range(_LOOKS):
        names = await _find(shell, root, words)
        if not names:
            return []
        sizes = await shell.pipe(
            _STAT,
            root,
            stdin=joined(names),
            timeout_s=LIST_TIMEOUT_S,
            limit_bytes=LIST_LIMIT_BYTES,
        )
        lines = sizes.body.split(b"\n")[:-1]
        if len(lines) == len(names):
            return [_remote_file(n, line) for n, line in zip(names, lines, strict=True)]
    raise _unlistable(root, sizes)


async def _find(shell: RemoteShell, root: str, words: Sequence[str]) -> list[bytes]:
    answer = await shell.pipe(
        _FIND.format(words=" ".join(words)),
        root,
        timeout_s=LIST_TIMEOUT_S,
        limit_bytes=LIST_LIMIT_BYTES,
    )
    return sorted({check_remote_name(name) for name in answer.body.split(b"\0") if name})


def shell_glob(pattern: str) -> str:
    """Return a relative glob as a shell word in which only `*`, `?` and `[…]` are special."""
    pieces = re.split(r"(\*+|\?|\[[!^]?[A-Za-z0-9_.-]+\])", pattern)
    quoted = [piece if n % 2 else shlex.quote(piece) for n, piece in enumerate(pieces) if piece]
    return "./" + "".join(quoted)


async def hash_files(
    shell: RemoteShell, root: str, names: Sequence[bytes], total_bytes: int
) -> dict[bytes, str]:
    """Return the SHA-256 of each file that could be read, by name."""
    if not names:
        return {}
    timeout_s = LIST_TIMEOUT_S + total_bytes / HASH_BYTES_PER_S
    answer = await shell.pipe(
        _SUMS_BATCH,
        root,
        stdin=joined(names),
        timeout_s=timeout_s,
        limit_bytes=LIST_LIMIT_BYTES,
    )
    digests = sums_of(names, answer.body.split(b"\n")[:-1])
    if digests is None:
        # One of them could not be read: one by one.
        answer = await shell.pipe(
            _SUMS, root, stdin=joined(names), timeout_s=timeout_s, limit_bytes=LIST_LIMIT_BYTES
        )
        sums = answer.body.split(b"\n")[:-1]
        if len(sums) != len(names):
            raise _unlistable(root, answer)
        digests = _digests(names, sums)
    return digests


def sums_of(names: Sequence[bytes], lines: Sequence[bytes]) -> dict[bytes, str] | None:
    """Return the digests that `sha256sum` told of these files in turn; None if it left some out."""
    if len(lines) != len(names):
        return None
    # A backslash in front says that the name, which was cut off, is escaped.
    return _digests(names, [line.removeprefix(b"\\") for line in lines])


def _digests(names: Sequence[bytes], lines: Sequence[bytes]) -> dict[bytes, str]:
    return {
        name: line[:64].decode()
        for name, line in zip(names, lines, strict=True)
        if _SHA256.fullmatch(line[:64])
    }


async def remove_files(shell: RemoteShell, root: str, names: Sequence[bytes]) -> None:
    """Remove files, and the directories that became empty by it."""
    if not names:
        return
    parents = {name.rsplit(b"/", n)[0] for name in names for n in range(1, name.count(b"/") + 1)}
    await shell.pipe('cd "$1" && xargs -0 rm -f --', root, stdin=joined(names))
    deepest_first = sorted(parents, key=lambda name: -name.count(b"/"))
    await shell.pipe('cd "$1" && xargs -0 rmdir -- 2>/dev/null', root, stdin=joined(deepest_first))


def joined(names: Sequence[bytes]) -> bytes:
    """Return names below a directory as the scripts here read them from standard input."""
    # ./ in front: no name is an option then, also not for tools that do not know --.
    return b"".join(b"./" + name + b"\0" for name in names)


def _remote_file(name: bytes, line: bytes) -> RemoteFile:
    size, mtime = line.split(b" ")
    return RemoteFile(name=name, bytes=int(size), mtime=int(mtime))


def _unlistable(root: str, answer: Answer) -> RemoteCommandFailed:
    return RemoteCommandFailed(
        f"the files in {root!r} on the machine cannot be listed: "
        f"{answer.stderr[:200].decode(errors='replace')!r}",
        exit_code=answer.exit_code,
    )
