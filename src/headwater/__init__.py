"""Headwater: one durable event log for one machine."""

from headwater.client import AsyncClient, Client
from headwater.config.engine import EngineSettings
from headwater.core import errors
from headwater.core.records import Record
from headwater.engine.asynchronous import AsyncDatabase
from headwater.engine.blocking import Database
from headwater.engine.opening import open_database as open  # noqa: A004
from headwater.engine.opening import open_database_async as open_async
from headwater.engine.read_only import ReadOnlyDatabase
from headwater.model.loss import Tombstone

__version__ = "0.1.0"

__all__ = [
    "AsyncClient",
    "AsyncDatabase",
    "Client",
    "Database",
    "EngineSettings",
    "ReadOnlyDatabase",
    "Record",
    "Tombstone",
    "__version__",
    "errors",
    "open",
    "open_async",
]
