"""The pages of one instance listing, put together, and whether they are all of it (I11).

Rules
1. A listing is complete only if no page has a follower any more, every page counts the same
   total, and that total is what was gathered. Otherwise it is unknown, not short.
2. An account that changes between two pages gives such a mismatch; asking again heals it.
"""

from typing import Final

from vastd.core.market import Instance
from vastd.errors import ContractChanged, OutcomeUnknown
from vastd.provider.vast.wire import instance_from, whole

PAGE_ROWS: Final = 25  # Vast's default and largest page (VAST_API 4.1)
MAX_PAGES: Final = 400  # guess: 10,000 instances; a server that goes round in circles stops here


class Listing:
    """Collects pages until the last; `instances` is in Vast's order, each id once."""

    def __init__(self) -> None:
        self._rows: dict[int, Instance] = {}
        self._tokens: list[str] = []  # in the order they were given to us
        self._total: int | None = None  # None when no page told
        self._pages = 0

    @property
    def instances(self) -> list[Instance]:
        return list(self._rows.values())

    def query(self) -> dict[str, str]:
        """Return the query of the next page; every value is JSON text, except the token."""
        query = {
            "select_filters": "{}",
            "order_by": '[{"col":"id","dir":"asc"}]',
            "limit": str(PAGE_ROWS),
        }
        if self._tokens:
            query["after_token"] = self._tokens[-1]
        return query

    def add(self, page: object) -> bool:
        """Take one page in; return whether the listing is complete.

        Raises:
            ContractChanged: the page has no list of readable rows, or an unknown way of paging.
            OutcomeUnknown: the pages contradict each other.
        """
        rows = page.get("instances") if isinstance(page, dict) else None
        if not isinstance(page, dict) or not isinstance(rows, list):
            raise ContractChanged("the listing holds no list of instances")
        self._pages += 1
        before = len(self._rows)
        for row in rows:
            instance = instance_from(row)
            self._rows.setdefault(instance.instance_id, instance)
        self._count(whole(page, "total_instances"))
        token = page.get("next_token")
        if token:
            self._go_on(token, grew=len(self._rows) > before)
            return False
        self._check_end(told_end="next_token" in page, last_rows=len(rows))
        return True

    def _count(self, total: int | None) -> None:
        if total is None:
            return
        if self._total is not None and total != self._total:
            raise OutcomeUnknown(
                f"the listing changed while it was read: {self._total} instances, then {total}"
            )
        self._total = total

    def _go_on(self, token: object, *, grew: bool) -> None:
        if not isinstance(token, str):
            raise ContractChanged(f"the listing's next_token is a {type(token).__name__}")
        if token in self._tokens or not grew or self._pages >= MAX_PAGES:
            raise OutcomeUnknown(
                f"the listing goes round in circles after {self._pages} pages "
                f"and {len(self._rows)} instances"
            )
        self._tokens.append(token)

    def _check_end(self, *, told_end: bool, last_rows: int) -> None:
        if self._total is not None and self._total != len(self._rows):
            raise OutcomeUnknown(
                f"the listing is partial: {len(self._rows)} of {self._total} instances"
            )
        if self._total is None and not told_end and last_rows >= PAGE_ROWS:
            raise ContractChanged("the listing does not tell whether a full page is the last")
