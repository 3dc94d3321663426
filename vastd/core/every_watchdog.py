"""Every watchdog there is, in the order in which they are shown."""

from typing import Final

from vastd.core import watchdogs
from vastd.core.cap_watchdogs import CAP_DOGS
from vastd.core.credit_watchdogs import CREDIT_DOGS
from vastd.core.outbid_watchdogs import OUTBID_DOGS
from vastd.core.price_watchdogs import PRICE_DOGS
from vastd.core.stuck_watchdogs import STUCK_DOGS

ALL: Final = (*watchdogs.ALL, *CAP_DOGS, *CREDIT_DOGS, *OUTBID_DOGS, *PRICE_DOGS, *STUCK_DOGS)
