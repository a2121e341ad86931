"""Headwater: one durable event log for one machine."""

from headwater.client import AsyncClient, Client
from headwater.engine.asynchronous import AsyncDatabase
from headwater.engine.blocking import Database
from headwater.engine.opening import open_database as open  # noqa: A004
from headwater.engine.opening import open_database_async as open_async
from headwater.engine.read_only import ReadOnlyDatabase

__version__ = "0.1.0"

__all__ = [
    "AsyncClient",
    "AsyncDatabase",
    "Client",
    "Database",
    "ReadOnlyDatabase",
    "__version__",
    "open",
    "open_async",
]
