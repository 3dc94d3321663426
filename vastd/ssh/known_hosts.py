"""The host keys each instance showed first: one small OpenSSH file per instance id.

Rules
1. Addresses and ports are reused by other people's machines, so the key is filed under the
   instance id, never under an address.
2. The first key is accepted and recorded; another key from the same instance is refused.
3. The file is one OpenSSH `known_hosts` line under the alias of the instance, so that the
   `ssh` and `rsync` binaries check the same key we do (`HostKeyAlias`).
"""

import os
from pathlib import Path

from vastd.errors import SshHostKeyChanged


def host_key_alias(instance_id: int) -> str:
    return f"vastd-{instance_id}"


class KnownHosts:
    """The files under `directory`; a missing file means the instance was never seen."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def path(self, instance_id: int) -> Path:
        return self._directory / str(instance_id)

    def known_key(self, instance_id: int) -> str | None:
        """Return `TYPE BASE64` as this instance first showed it, or None if never seen."""
        try:
            text = self.path(instance_id).read_text("ascii", errors="replace")
        except FileNotFoundError:
            return None
        for line in text.splitlines():
            words = line.split()
            if len(words) >= 3 and words[0] == host_key_alias(instance_id):
                return f"{words[1]} {words[2]}"
        return None

    def accept(self, instance_id: int, public_key: str) -> None:
        """Record the first key of an instance, durably; a repeat of it changes nothing.

        Raises:
            SshHostKeyChanged: another key is on record.
        """
        shown = " ".join(public_key.split()[:2])
        known = self.known_key(instance_id)
        if known is None:
            self._write(instance_id, f"{host_key_alias(instance_id)} {shown}\n")
        elif known != shown:
            raise host_key_changed(instance_id, str(self.path(instance_id)))

    def forget(self, instance_id: int) -> None:
        """Drop the record, for an instance that is gone or was made anew."""
        self.path(instance_id).unlink(missing_ok=True)

    def _write(self, instance_id: int, text: str) -> None:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = self._directory / f".{instance_id}.tmp"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path(instance_id))


def host_key_changed(instance_id: int, path: str) -> SshHostKeyChanged:
    """Return the error for a key that differs from the recorded one."""
    return SshHostKeyChanged(
        f"instance {instance_id} shows another host key than the one it showed first",
        hint=f"somebody may be listening in between; if the machine was recreated, delete {path}",
    )
