"""Failures of maintenance in the server's log: no caller waits for them."""

from __future__ import annotations

from headwater.observe.logs import Logger
from headwater.server.backend import Backend


class MaintenanceWatch:
    """Logs each kind of failure once, and that it is over."""

    def __init__(self, backend: Backend, log: Logger) -> None:
        self._backend = backend
        self._log = log
        self._logged: str | None = None

    def check(self) -> None:
        error = self._backend.maintenance_error
        failure = None if error is None else str(error) or repr(error)
        if failure != self._logged:
            self._logged = failure
            if failure is None:
                self._log.info("maintenance succeeds again")
            else:
                self._log.warning("maintenance failed; it is tried again", error=failure)
