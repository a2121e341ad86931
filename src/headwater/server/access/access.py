"""What every port of one server asks before it takes a request: keys, pages, quotas."""

from __future__ import annotations

from headwater.config.server import ServerSettings
from headwater.server.access.keys import KeyRing
from headwater.server.access.quotas import Quotas
from headwater.server.access.sites import Sites


class Access:
    def __init__(self, settings: ServerSettings) -> None:
        self.keys = KeyRing(settings.api_keys)
        self.sites = Sites(settings)
        self.quotas = Quotas(settings.limits, len(self.keys), len(settings.kafka_users))
