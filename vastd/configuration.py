"""The settings in force, as the rest of the daemon uses them; replaced as a whole on a reload."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from vastd.config import project as projects
from vastd.config.edit import set_values
from vastd.config.keys import all_keys
from vastd.config.load import Config, Origin, load
from vastd.config.project import ProjectFile, Stated
from vastd.config.settings import BYTES_PER_MB, Profile, RetentionTable, Settings
from vastd.config.views import FIXED_AT_START, config_view, setting_view
from vastd.core.limits import Caps, LeaseRules, Limits
from vastd.core.money import Micros, from_usd
from vastd.core.rental import OnOutbid, Policy
from vastd.errors import ConfigError, InvalidRequest
from vastd_protocol.methods.config import ConfigView, SettingView, Value


class ConfigurationHolder:
    """Owns the newest `Config`; `on_change` is called after each replacement.

    `started` is what the daemon started with: some settings stay at that until the next start.
    """

    def __init__(
        self,
        config: Config,
        environ: Mapping[str, str] = os.environ,
        *,
        started: Config | None = None,
        project: ProjectFile | None = None,
        warnings: Sequence[str] = (),
    ) -> None:
        self.config = config
        self.started = started or config
        self.project = project  # None: this is not of one project
        self.warnings: Sequence[str] = tuple(warnings)  # for whoever works in the project
        self._environ = environ
        self.on_change: Callable[[], None] = lambda: None

    @property
    def settings(self) -> Settings:
        """Return the values in force."""
        return self.config.value

    def of_project(self, project: str | None) -> "ConfigurationHolder":
        """Return the settings for calls from the directory `project`; read only. It is read anew
        each time, so that an edit counts at the next command.

        Raises:
            ConfigError: the project's own file cannot be used; names file and line.
        """
        if project is None or not os.path.isabs(project) or "\0" in project:
            return self
        found = projects.read_project(Path(project))
        config, warnings = projects.put_over(self.config, found)
        return ConfigurationHolder(
            config, self._environ, started=self.started, project=found, warnings=warnings
        )

    def by_project(self, dotted: str) -> bool:
        """Return whether the project set that key."""
        return self.config.origin(dotted) is Origin.PROJECT

    def source(self, dotted: str) -> str:
        """Return who set a key, for people."""
        match self.config.origin(dotted):
            case Origin.PROJECT if self.project is not None:
                return f"project ({self.project.where(dotted)})"
            case Origin.FILE | Origin.ENVIRONMENT:
                return f"configuration ({dotted})"
            case _:
                return "default"

    def profile(self, said: str | None = None) -> Stated:
        """Return the profile in force: the command's, the project's, the configured, the one
        whose files lie in the project, the default.

        Raises:
            InvalidRequest: there is no such profile.
        """
        key = "defaults.profile"
        if said is not None:
            if said not in set(Profile):
                known = " and ".join(Profile)
                raise InvalidRequest(f"there is no profile {said[:40]!r}: vastd knows {known}")
            return Stated(profile=Profile(said), origin=None, source="you said so (--profile)")
        origin = self.config.origin(key)
        chosen = self.settings.defaults.profile
        if origin is Origin.DEFAULT and self.project is not None:
            found = projects.detected_profile(self.project.root)
            if found is not None:
                profile, mark = found
                return Stated(
                    profile=profile, origin=Origin.PROJECT, source=f"project (it has {mark})"
                )
        return Stated(profile=chosen, origin=origin, source=self.source(key))

    def outputs(self) -> list[str]:
        """Return what a job brings home when the command names nothing; empty: the defaults."""
        return list(self.settings.job.outputs)

    def view(self, key: str | None, project: str | None = None) -> ConfigView:
        """Return settings with their origin, as they are in `project` if one is given."""
        mine = self.of_project(project)
        return config_view(
            mine.config,
            self._environ,
            key,
            started=self.started,
            project=mine.project,
            profile=mine.profile(),
        )

    def waiting(self) -> list[str]:
        """Return the keys whose new value counts from the next start on."""
        return [
            key for key in sorted(FIXED_AT_START) if self.config.get(key) != self.started.get(key)
        ]

    def set(self, changes: Mapping[str, Value]) -> list[SettingView]:
        """Write settings to the file, all at once, and take them into force.

        Raises:
            InvalidRequest, ConfigError: nothing was changed.
        """
        self.config = set_values(self.config.path, changes, self._environ)
        self.on_change()
        return [setting_view(self.config, key, started=self.started) for key in changes]

    def error_on_disk(self) -> str | None:
        """Return why the file could not be used if vastd were started now; None if it could."""
        try:
            load(self.config.path, self._environ)
        except ConfigError as exc:
            return str(exc)
        return None

    def reload(self) -> list[str]:
        """Read the file again; return the keys whose value changed.

        Raises:
            ConfigError: the file cannot be used; the old settings stay in force.
        """
        before, after = self.config, load(self.config.path, self._environ)
        self.config = after
        self.on_change()
        return [key for key in all_keys() if before.get(key) != after.get(key)]

    def retention(self) -> RetentionTable:
        """Return how long what is over is kept."""
        return self.config.value.retention

    def job_log_cap(self) -> int:
        """Return how many bytes of one job's log are kept at home."""
        return self.config.value.retention.job_log_max_mb * BYTES_PER_MB

    def limits(self) -> Limits:
        """Return the limits decisions use."""
        value = self.config.value
        timing, budget = value.timing, value.budget
        return Limits(
            list_interval_busy_s=timing.list_interval_busy_s,
            list_interval_idle_s=timing.list_interval_idle_s,
            boot_warn_s=timing.boot_warn_s,
            boot_timeout_s=timing.boot_timeout_s,
            ssh_budget_s=timing.ssh_budget_s,
            ssh_spacing_s=timing.ssh_spacing_s,
            settle_s=timing.settle_s,
            destroy_retry_s=timing.destroy_retry_s,
            destroy_shout_s=timing.destroy_shout_s,
            heartbeat_stale_factor=timing.heartbeat_stale_factor,
            idle_warn_s=value.defaults.idle_s,
            grace_s=timing.grace_s,
            attempts=timing.attempts,
            warn_percent=budget.warn_percent,
            end_at_zero_credit=value.defaults.on_zero_credit == "end",
            caps=Caps(
                per_day=from_usd(budget.per_day_usd),
                per_project=_maybe_usd(budget.per_project_usd),
                per_month=_maybe_usd(budget.per_month_usd),
            ),
            lease=LeaseRules(
                lease_s=timing.lease_s,
                renew_s=timing.lease_renew_s,
                while_busy=timing.lease_while_busy,
                on_expiry=timing.on_expiry,
                required=timing.lease_required,
                salvage=timing.salvage or "",
            ),
        )

    def policy(self) -> Policy:
        """Return the policy a rental gets when the user says nothing."""
        value = self.config.value
        return Policy(
            max_runtime_s=value.defaults.max_runtime_s,
            grace_s=value.timing.grace_s,
            unreachable_end_s=value.defaults.unreachable_end_s,
            on_outbid=OnOutbid(value.defaults.on_outbid),
            outbid_wait_s=value.defaults.outbid_wait_s,
            idle_warn_s=value.defaults.idle_s if self.by_project("defaults.idle_s") else None,
        )

    def caps(self) -> tuple[Micros, Micros]:
        """Return the cap of one job, and of one machine per hour."""
        budget = self.config.value.budget
        return from_usd(budget.per_job_usd), from_usd(budget.max_dph_usd)

    def image(self, said: str | None = None) -> str:
        """Return the image to rent with when the command names none (CRE-03). `said` is the
        profile it names."""
        return self.settings.defaults.image_for(self.profile(said).profile)

    def image_source(self, said: str | None = None) -> str:
        """Return where that image comes from, for people."""
        if self.settings.defaults.image is not None:
            return self.source("defaults.image")
        stated = self.profile(said)
        why = "" if stated.source == "default" else f", {stated.source}"
        return f"default of the {stated.profile} workflow{why}"

    def disk_gb(self) -> float:
        """Return the disk to rent with when the command names none."""
        return self.settings.defaults.disk_gb

    def ssh_key(self) -> Path | None:
        """Return the private key named when the daemon started, or None: machines know that one."""
        named = self.started.value.defaults.ssh_key
        return None if named is None else Path(named).expanduser()

    def ssh_connect_s(self) -> float:
        """Return how many seconds a connection may take: as the daemon's own, since its start."""
        return self.started.value.timing.ssh_connect_s


def _maybe_usd(usd: float | None) -> Micros | None:
    return None if usd is None else from_usd(usd)
