"""Headwater: one durable event log for one machine.

The names below are imported when they are first used: a command that only asks a server
need not load the engine, a server need not load the client, and Spark's executors load
neither.
"""

from typing import TYPE_CHECKING

from headwater.core import errors
from headwater.core.late_names import late_names

if TYPE_CHECKING:
    from headwater.client import AsyncClient, Client
    from headwater.config.engine import EngineSettings
    from headwater.core.records import Record
    from headwater.engine.async_database import AsyncDatabase
    from headwater.engine.database import Database
    from headwater.engine.machines.requests import ApplyEvent, CreateInstance, DeleteInstance
    from headwater.engine.opening import open_database as open  # noqa: A004
    from headwater.engine.opening import open_database_async as open_async
    from headwater.engine.read_only import ReadOnlyDatabase
    from headwater.model.loss import Tombstone

__version__ = "0.1.0"

__getattr__ = late_names(
    __name__,
    {
        "ApplyEvent": "headwater.engine.machines.requests:ApplyEvent",
        "AsyncClient": "headwater.client:AsyncClient",
        "AsyncDatabase": "headwater.engine.async_database:AsyncDatabase",
        "Client": "headwater.client:Client",
        "CreateInstance": "headwater.engine.machines.requests:CreateInstance",
        "Database": "headwater.engine.database:Database",
        "DeleteInstance": "headwater.engine.machines.requests:DeleteInstance",
        "EngineSettings": "headwater.config.engine:EngineSettings",
        "ReadOnlyDatabase": "headwater.engine.read_only:ReadOnlyDatabase",
        "Record": "headwater.core.records:Record",
        "Tombstone": "headwater.model.loss:Tombstone",
        "open": "headwater.engine.opening:open_database",
        "open_async": "headwater.engine.opening:open_database_async",
    },
)

__all__ = [
    "ApplyEvent",
    "AsyncClient",
    "AsyncDatabase",
    "Client",
    "CreateInstance",
    "Database",
    "DeleteInstance",
    "EngineSettings",
    "ReadOnlyDatabase",
    "Record",
    "Tombstone",
    "__version__",
    "errors",
    "open",
    "open_async",
]
