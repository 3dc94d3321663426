"""Routes about templates: search, make, change, delete."""

from typing import Final

from vastd.simulator import search
from vastd.simulator.facade.backend import Backend
from vastd.simulator.facade.http import Reply
from vastd.simulator.facade.routes import Call, Route, Scope, done
from vastd.simulator.refusals import invalid_request

# `search.matches` treats `id` as offers do (it matches nothing), so it is renamed for it.
ID_ALIAS: Final = "template_id"


class TemplateRoutes:
    """Handlers of templates. Only the account's own exist here, no public ones."""

    def __init__(self, backend: Backend) -> None:
        self._templates = backend.templates

    def table(self) -> list[Route]:
        """Return the routes. The client changes through v1, the documents through v0."""
        read, write, path = Scope.USER_READ, Scope.USER_WRITE, "/api/v0/template/"
        return [
            Route(method="GET", path=path, handler=self.find, scope=read, threshold_s=3.0),
            Route(method="POST", path=path, handler=self.create, scope=write),
            Route(method="PUT", path=path, handler=self.update, scope=write),
            Route(method="PUT", path="/api/v1/template/", handler=self.update, scope=write),
            Route(method="DELETE", path=path, handler=self.delete, scope=write),
        ]

    async def find(self, call: Call) -> Reply:
        """List the templates that pass the filters."""
        filters = call.query_json("select_filters") or {}
        if not isinstance(filters, dict) or not all(isinstance(t, dict) for t in filters.values()):
            raise invalid_request("select_filters: Input should be a valid dictionary")
        tests = {ID_ALIAS if name == "id" else name: test for name, test in filters.items()}
        found = [
            row
            for row in self._templates.all()
            if search.matches({**row, ID_ALIAS: row["id"]}, tests)
        ]
        return done(templates_found=len(found), templates=found)

    async def create(self, call: Call) -> Reply:
        """Keep a template."""
        return done(template=self._templates.create(call.body()), msg="")

    async def update(self, call: Call) -> Reply:
        """Change a template."""
        return done(template=self._templates.update(call.body()), msg="")

    async def delete(self, call: Call) -> Reply:
        """Forget a template."""
        self._templates.delete(call.body())
        return done(msg="Template deleted.")
