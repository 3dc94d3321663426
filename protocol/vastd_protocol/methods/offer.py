"""`offer.search`: ranked offers in Vast's query language."""

from msgspec import field

from vastd_protocol.method import Method, Params, View
from vastd_protocol.methods.task import Needs, OptionView


class OfferSearchParams(Params, frozen=True, kw_only=True):
    """`query` is Vast's language (`gpu_ram>=24 reliability>0.98`); `needs` narrows further, and
    with `project` (an absolute path) what that project usually needs where `needs` is silent."""

    query: str | None = None
    needs: Needs = field(default_factory=Needs)
    limit: int = 20
    project: str | None = None


class OffersView(View, frozen=True, kw_only=True):
    """Offers by estimated total (by price when the hours are unknown), cheapest first.
    `defaults` are the needs nobody stated in the call, each with who set it."""

    offers: list[OptionView] = field(default_factory=list)
    considered: int = 0
    removed: dict[str, int] = field(default_factory=dict)
    near_misses: list[OptionView] = field(default_factory=list)
    as_of: str | None = None
    defaults: dict[str, str] = field(default_factory=dict)


SEARCH = Method("offer.search", OfferSearchParams, OffersView, "Search and rank offers")

METHODS = (SEARCH,)
