"""The errors vastd raises: each class tells the caller what he may conclude.

Rules
1. Everything we raise is a `VastdError`; foreign exceptions are translated at the one call
   that can raise them.
2. A message says what was tried, on which id, what came back and what to do next. It never
   holds a secret.
3. Provider errors answer one question first: *may it have happened?*
"""


class VastdError(Exception):
    """The root of our errors. `hint` is the remedy shown to the user, or empty."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


# -- what the provider (Vast) answered ---------------------------------------------------


class ProviderError(VastdError):
    """A call to Vast did not succeed; the subclass tells whether it may have happened."""


class Refused(ProviderError):
    """Vast said no: nothing was made or changed."""


class OfferGone(Refused):
    """The offer is rented or withdrawn: take the next one, no cost arose."""


class BadSpec(Refused):
    """Image, arguments or bid are not acceptable: every other offer would refuse too."""


class NoCredit(Refused):
    """The account cannot pay: stop, do not try other offers."""


class SpendRateLimit(Refused):
    """A young account rents too fast: wait or add credit, other offers fail alike."""


class NotPermitted(Refused):
    """The key lacks the permission for this call, or the thing is somebody else's."""


class NoSuchInstance(Refused):
    """Vast does not know the instance id: a hint that it is gone, not yet a proof (I3)."""


class AuthRejected(ProviderError):
    """The key was not accepted (401, 403 or a 404 that says `auth_error`): nothing was done.

    Says nothing about whether any instance exists.
    """


class RateLimited(ProviderError):
    """Too many requests: nothing was done, try again after `retry_after_s`."""

    def __init__(
        self, message: str, *, retry_after_s: float, quota: bool = False, hint: str = ""
    ) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s
        self.quota = quota  # the daily search quota: retrying before the reset is useless


class OutcomeUnknown(ProviderError):
    """No trustworthy answer: it may have happened (time-out, reset, 5xx, unreadable body)."""


class NoAnswer(OutcomeUnknown):
    """Nothing came back at all, not even a refusal: perhaps nobody can be reached."""


class Unreachable(ProviderError):
    """No connection was made (name, route, refused, TLS): nothing was sent, nothing was done."""


class CreatedButFailed(ProviderError):
    """The create was refused and yet an instance exists: it bills until destroyed."""

    def __init__(self, message: str, *, instance_id: int, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.instance_id = instance_id


class ContractChanged(ProviderError):
    """The endpoint is retired or answers in a shape we do not know: the inventory is unknown."""


# -- what the way to a machine said ------------------------------------------------------


class SshError(VastdError):
    """A machine could not be reached or used over SSH. `retryable` says if waiting may help."""

    retryable = False


class SshRefused(SshError):
    """Connection refused or no route: sshd is not up yet, or the port is wrong."""

    retryable = True


class SshTimeout(SshError):
    """Nobody answered in time; the peer may be black-holed."""

    retryable = True


class SshClosed(SshError):
    """The connection broke after it was made: what ran remotely may still run."""

    retryable = True


class SshAuthRejected(SshError):
    """The key was not accepted: attach it to the instance once, then recreate."""


class SshHostKeyChanged(SshError):
    """The host key differs from the one this instance showed first: refused."""


class RemoteCommandFailed(SshError):
    """The remote command ran and exited with `exit_code`."""

    def __init__(self, message: str, *, exit_code: int, stderr: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.exit_code = exit_code
        self.stderr = stderr


class GuardNotArmed(SshError):
    """The machine answers, and nothing there would end it without us: do not rely on it."""

    retryable = True


class HardwareMismatch(VastdError):
    """The machine is not what was ordered: destroy it, avoid the host, take the next offer."""


class TransferFailed(VastdError):
    """A copy did not complete or does not match: what is on the other side must be kept."""


class UnsafePath(VastdError):
    """A destination that would break the machine or lie outside where we may write."""


# -- what a client asked -----------------------------------------------------------------


class NotFound(VastdError):
    """No rental, job or offer of that name or id is ours."""


class AmbiguousName(VastdError):
    """Several rentals or jobs fit; the message lists them."""


class InvalidRequest(VastdError):
    """The parameters make no sense; nothing was changed."""


class PolicyRefused(VastdError):
    """A rule the user set (or a default) forbids it."""


class BudgetExceeded(VastdError):
    """A spending cap would be crossed; nothing was rented. Asking again is useless."""


class CapReached(BudgetExceeded):
    """A cap that machines share has no room now: more when one ends, or its window does.

    `refusal` holds the numbers (`core.refusal.Refusal`).
    """

    def __init__(self, message: str, *, refusal: object, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.refusal = refusal


class JobActive(VastdError):
    """A job still runs there; `--force --reason` overrides."""


class InventoryUnknown(VastdError):
    """What exists at Vast is not known right now, so nothing new may be rented (I11)."""


class NoOffers(VastdError):
    """No offer fits; the message says which filter removed how many."""


class CapLeavesNone(NoOffers):
    """Offers fit, and every one costs more per hour than a cap of the user or project allows."""


# -- our own state -----------------------------------------------------------------------


class ConfigError(VastdError):
    """The configuration or the environment cannot be used; names file, line and key."""


class IllegalTransition(VastdError):
    """A bug: an event that has no row in the lifecycle table. Changes nothing."""


class StoreError(VastdError):
    """The store could not be read or written; `damaged` means it is quarantined."""

    damaged = False


class StateUnusable(StoreError):
    """The state directory or its database cannot be written at the start: nothing is watched."""

    def __init__(self, message: str) -> None:
        super().__init__(
            message,
            hint="machines on record bill on and nobody watches them: make it writable for you and "
            "free some space, then start vastd. If that takes long, let vastd watch them from a "
            "copy: `cp -a STATE_DIR COPY`, start it with VASTD_STATE_DIR=COPY, and never start one "
            "on the old place again. An empty directory would know none of them",
        )


class StoreLocked(StoreError):
    """Another daemon owns this state directory."""


class StoreDamaged(StoreError):
    """The store is unreadable and was moved aside; renting is locked until acknowledged (I8)."""

    damaged = True


class StoreTooNew(StoreError):
    """A newer vastd wrote this store; this build refuses to touch it."""
