"""The settings in force, as the rest of the daemon uses them; replaced as a whole on a reload."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from vastd.config.edit import set_value
from vastd.config.keys import all_keys
from vastd.config.load import Config, load
from vastd.config.views import config_view, setting_view
from vastd.core.limits import Limits
from vastd.core.money import Micros, from_usd
from vastd.core.rental import Policy
from vastd_protocol.methods.config import ConfigView, SettingView, Value


class ConfigurationHolder:
    """Owns the newest `Config`; `on_change` is called after each replacement."""

    def __init__(self, config: Config, environ: Mapping[str, str] = os.environ) -> None:
        self.config = config
        self._environ = environ
        self.on_change: Callable[[], None] = lambda: None

    def view(self, key: str | None) -> ConfigView:
        """Return settings with their origin."""
        return config_view(self.config, self._environ, key)

    def set(self, key: str, value: Value) -> SettingView:
        """Write one setting to the file and take it into force.

        Raises:
            InvalidRequest, ConfigError: nothing was changed.
        """
        self.config = set_value(self.config.path, key, value, self._environ)
        self.on_change()
        return setting_view(self.config, key)

    def reload(self) -> list[str]:
        """Read the file again; return the keys whose value changed.

        Raises:
            ConfigError: the file cannot be used; the old settings stay in force.
        """
        before, after = self.config, load(self.config.path, self._environ)
        self.config = after
        self.on_change()
        return [key for key in all_keys() if before.get(key) != after.get(key)]

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
        )

    def policy(self) -> Policy:
        """Return the policy a rental gets when the user says nothing."""
        value = self.config.value
        return Policy(max_runtime_s=value.defaults.max_runtime_s, grace_s=value.timing.grace_s)

    def caps(self) -> tuple[Micros, Micros]:
        """Return the cap of one job, and of one machine per hour."""
        budget = self.config.value.budget
        return from_usd(budget.per_job_usd), from_usd(budget.max_dph_usd)

    def image(self) -> str:
        """Return the image to rent with when the command names none (CRE-03)."""
        return self.config.value.defaults.image_for()

    def disk_gb(self) -> float:
        """Return the disk to rent with when the command names none."""
        return self.config.value.defaults.disk_gb

    def ssh_key(self) -> Path | None:
        """Return the configured private key, or None."""
        named = self.config.value.defaults.ssh_key
        return None if named is None else Path(named).expanduser()
