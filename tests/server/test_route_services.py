"""Each route names the service that its handler is made for."""

from __future__ import annotations

import inspect

import pytest

from headwater.server.http.route_table import Route
from headwater.server.routes import every_route


@pytest.mark.parametrize("route", every_route(), ids=lambda route: f"{route.method} {route.path}")
def test_a_handler_takes_the_service_that_its_route_names(route: Route) -> None:
    service, exchange = inspect.signature(route.handler).parameters.values()
    assert service.annotation == route.served_by.__name__
    assert exchange.annotation == "Exchange"
