"""One job on a simulated machine: its state, log, heartbeat and outputs at any instant.

Nothing runs: everything is computed from when it started, when it was signalled and when its
machine went down.
"""

import hashlib
import math

from vastd.jobs.port import BoxJobState, Heartbeat, JobOrder, JobSnapshot
from vastd.simulator.contracts import Contract
from vastd.simulator.programs import CHECKPOINT, CHECKPOINT_BYTES, EXIT_ON_TERM, content, parse


class SimJob:
    """A job that was started once, on one disk, in one run of its container."""

    def __init__(self, order: JobOrder, contract: Contract, now: float, pid: int) -> None:
        self.order = order
        self.contract = contract
        self.program = parse(order.command)
        self.boot_id = contract.boot_id
        self.disk_id = contract.disk_id
        self.started_at = now
        self.pid = pid
        self.starts = 1  # how often a process was really started: never more than once
        self.collected: dict[str, str] = {}  # path -> SHA-256 of what was brought home
        self._term_s: float | None = None
        self._kill_s: float | None = None
        self._full_disk = contract.trouble.disk_full

    # -- life ----------------------------------------------------------------------------

    def signal(self, name: str, now: float) -> None:
        """Receive TERM or KILL; nothing happens when it has ended."""
        if self.ended_at(now) is not None:
            return
        if name == "KILL":
            self._kill_s = now - self.started_at
        elif self._term_s is None:
            self._term_s = now - self.started_at

    def planned_end(self) -> float:
        """Return when it will end if its machine stays up."""
        return self.started_at + self.program.end_s(self._term_s, self._kill_s)

    def killed_at(self) -> float | None:
        """Return when the machine went down under the running job, or None."""
        down = self.contract.run_of(self.boot_id).end_at
        return down if down is not None and down < self.planned_end() else None

    def ended_at(self, now: float) -> float | None:
        """Return when it ended, or None while it runs."""
        end = self.killed_at()
        end = self.planned_end() if end is None else end
        return end if end <= now else None

    def state(self, now: float) -> BoxJobState:
        """Return its state at `now`."""
        if self.ended_at(now) is None:
            return BoxJobState.RUNNING
        return BoxJobState.DIED if self.exit_code(now) is None else BoxJobState.EXITED

    def exit_code(self, now: float) -> int | None:
        """Return its exit code, or None while it runs or when it left none."""
        if self.ended_at(now) is None or self.killed_at() is not None:
            return None
        code = self.program.exit_of(self._term_s, self._kill_s)
        return 1 if code == 0 and self._full_disk else code

    # -- what it leaves ------------------------------------------------------------------

    def outputs(self, now: float) -> dict[str, bytes]:
        """Return the files it has written by `now`: path below the project -> content."""
        code = self.exit_code(now)
        if self.ended_at(now) is None or code is None or self._full_disk:
            return {}
        if code == EXIT_ON_TERM and self._term_s is not None:
            return {CHECKPOINT: self._content(CHECKPOINT, CHECKPOINT_BYTES)}
        if self._kill_s is not None and code != self.program.exit_code:
            return {}
        return {path: self._content(path, size) for path, size in self.program.outputs.items()}

    def _content(self, path: str, size: int) -> bytes:
        return content(f"{self.order.job_id}:{path}", size)

    def output_hashes(self, now: float) -> dict[str, str]:
        """Return the SHA-256 of every output."""
        return {path: hashlib.sha256(data).hexdigest() for path, data in self.outputs(now).items()}

    def log(self, now: float, offset: int, limit: int) -> bytes:
        """Return up to `limit` bytes of its log from `offset`."""
        return self.program.log_slice(offset, min(offset + limit, self.log_bytes(now)))

    def log_bytes(self, now: float) -> int:
        """Return the size of its log."""
        return self.program.log_bytes(self._ran_s(now))

    def _ran_s(self, now: float) -> float:
        end = self.ended_at(now)
        return (now if end is None else end) - self.started_at

    # -- how it looks --------------------------------------------------------------------

    def snapshot(self, now: float, skew_s: float, disk_free_bytes: int) -> JobSnapshot:
        """Return one look at it; `skew_s` is how far the machine's clock is ahead."""
        end = self.ended_at(now)
        beat_at = self._last_beat_at(now)
        running = end is None
        return JobSnapshot(
            state=self.state(now),
            box_clock=now + skew_s,
            pid=self.pid,
            exit_code=self.exit_code(now),
            box_started_at=self.started_at + skew_s,
            # A runner that was killed with its job has noted no end.
            box_ended_at=None if end is None or self.killed_at() else end + skew_s,
            log_bytes=self.log_bytes(now),
            heartbeat=None if beat_at is None else self._heartbeat(beat_at, skew_s),
            box_heartbeat_at=None if beat_at is None else beat_at + skew_s,
            gpu_util=93.0 if running else 0.0,
            disk_free_bytes=disk_free_bytes,
        )

    def _last_beat_at(self, now: float) -> float | None:
        every = self.program.heartbeat_s
        if self.order.heartbeat_path is None or every is None:
            return None
        ran = self._ran_s(now)
        if self.program.heartbeats_stop_s is not None:
            ran = min(ran, self.program.heartbeats_stop_s)
        return self.started_at + math.floor(ran / every) * every

    def _heartbeat(self, at: float, skew_s: float) -> Heartbeat:
        every = self.program.heartbeat_s or 1.0
        step = round((at - self.started_at) / every)
        return Heartbeat(
            epoch=at + skew_s,
            step=step,
            loss=None if self.program.nan_loss else self.program.loss(step),
        )
