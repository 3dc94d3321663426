"""What the files on one machine hold: read there, or known because their state is the same.

Rules
1. The state is taken before the content is read: what changes in between has another state at
   the next look.
2. The machine's own clock says what "now" is, by a file touched before the look.
3. A machine without GNU stat tells no states: there, every file is read every time.
"""

import re
from collections.abc import Sequence
from typing import Final

from vastd.jobs.known_sums import FileState, KnownSums
from vastd.jobs.remote_files import (
    HASH_BYTES_PER_S,
    LIST_LIMIT_BYTES,
    LIST_TIMEOUT_S,
    hash_files,
    joined,
    sums_of,
)
from vastd.jobs.remote_shell import RemoteShell

_NO_ROOT: Final = 9  # as the scripts exit when there is no such directory
# Names go in and come out ending in NUL; links are followed, as for the checksums.
_STAT: Final = 'stat -L --printf "%d %i %s %.9Y %.9Z %n\\0" --'
_NOW: Final = 'mkdir -p "${2%/*}"; touch -- "$2"; cd "$1" || exit 9; ' + _STAT + ' "$2"; '
_STATES: Final = f"{{ {_NOW} xargs -0 {_STAT}; }} 2>/dev/null"
# Each batch: its states, a NUL, its sums, a NUL. The sums are cut as in `remote_files`.
_STATES_AND_SUMS: Final = (
    f'{{ {_NOW} xargs -0 sh -c \'{_STAT} "$@"; printf "\\\\0"; '
    'sha256sum -- "$@" | cut -b 1-65; printf "\\\\0"\' sums; } 2>/dev/null'
)
_STATE: Final = re.compile(
    rb"(\d+) (\d+) (\d+) (-?\d+)[.,](\d{9}) (\d+)[.,](\d{9}) (.+)", re.DOTALL
)


class RemoteSums:
    """The digests of files below one directory of a machine, over all connections to it."""

    def __init__(self) -> None:
        self._known: dict[str, KnownSums[bytes]] = {}  # by root

    def knows(self, root: str) -> bool:
        """Return whether anything is known of files below `root`."""
        return bool(self._known.get(root))

    async def recall(
        self, shell: RemoteShell, root: str, names: Sequence[bytes], total_bytes: int
    ) -> dict[bytes, str]:
        """Return the digest of each file that is there; only those in a new state are read.

        `total_bytes` bounds the wait, should all of them have to be read.
        """
        answer = await shell.pipe(
            _STATES,
            root,
            _clock_path(shell),
            stdin=joined(names),
            timeout_s=LIST_TIMEOUT_S,
            limit_bytes=LIST_LIMIT_BYTES,
        )
        if answer.exit_code == _NO_ROOT:
            return {}
        states, now_ns = _parse_states(answer.body.split(b"\0"), _clock_path(shell))
        if now_ns is None:
            return await hash_files(shell, root, names, total_bytes)
        known = self._known.setdefault(root, KnownSums())
        digests: dict[bytes, str] = {}
        changed: list[bytes] = []
        for name in names:
            state = states.get(name)
            if state is None:
                continue  # it is not there
            digest = known.get(name, state)
            if digest is None:
                changed.append(name)
            else:
                digests[name] = digest
        return digests | await self.read(shell, root, changed, total_bytes)

    async def read(
        self, shell: RemoteShell, root: str, names: Sequence[bytes], total_bytes: int
    ) -> dict[bytes, str]:
        """Read files there and return the digest of each that could be read."""
        if not names:
            return {}
        answer = await shell.pipe(
            _STATES_AND_SUMS,
            root,
            _clock_path(shell),
            stdin=joined(names),
            timeout_s=LIST_TIMEOUT_S + total_bytes / HASH_BYTES_PER_S,
            limit_bytes=LIST_LIMIT_BYTES,
        )
        parts = answer.body.split(b"\0")
        lines = b"".join(part for part in parts if not _STATE.fullmatch(part)).split(b"\n")[:-1]
        digests = sums_of(names, lines)
        if digests is None:
            # One of them could not be read.
            return await hash_files(shell, root, names, total_bytes)
        states, now_ns = _parse_states(parts, _clock_path(shell))
        known = self._known.setdefault(root, KnownSums())
        for name, digest in digests.items():
            if now_ns is not None and name in states:
                known.keep(name, states[name], digest, now_ns)
        return digests


def _clock_path(shell: RemoteShell) -> str:
    return f"{shell.workspace}/.vastd/sync/clock"


def _parse_states(
    parts: Sequence[bytes], clock_path: str
) -> tuple[dict[bytes, FileState], int | None]:
    """Return the states by name, and the machine's time at the look; None if it did not tell."""
    states: dict[bytes, FileState] = {}
    now_ns = None
    clock = clock_path.encode()
    for part in parts:
        match = _STATE.fullmatch(part)
        if match is None:
            continue
        device, inode, size, mtime, mtime_ns, ctime, ctime_ns, name = match.groups()
        if name == clock:
            now_ns = int(mtime + mtime_ns)
            continue
        states[name.removeprefix(b"./")] = FileState(
            device=int(device),
            inode=int(inode),
            bytes=int(size),
            mtime_ns=int(mtime + mtime_ns),
            ctime_ns=int(ctime + ctime_ns),
        )
    return states, now_ns
