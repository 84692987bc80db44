"""Tenants over HTTP (rule D24): what each may do. No setting sends a payload elsewhere, so `control` may set them."""

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tickwheel.delivery.model.entries import RemoveTenant, SetTenant
from tickwheel.delivery.serve.named import Named, answered
from tickwheel.delivery.serve.problems import refuse_query


class Tenants(Named):
    """Their routes."""

    kind = "tenant"
    settings = "any of concurrency, rate, weight, paused: see the settings of a tenant"

    async def set(self, name: str, text: str, settings: Mapping[str, Any]) -> Response:  # noqa: ARG002
        """Set its limits."""
        answer = await self.submit(SetTenant(name, text))
        return answered("set_tenant", name, answer, "open the server with --order key")

    async def remove(self, request: Request, name: str) -> Response:
        """It has the usual limits again."""
        refuse_query(request)
        return answered("remove_tenant", name, await self.submit(RemoveTenant(name)), "")
