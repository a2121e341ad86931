"""GET /v0/jobs: the last runs of `verify`, `doctor` and the pipeline's jobs."""

from __future__ import annotations

from functools import partial

import msgspec

from headwater.engine.engine import Engine
from headwater.engine.maintenance.reports import Reports, read_reports
from headwater.engine.operation import InFiles, Operation
from headwater.server.backend import Backend
from headwater.server.http.exchange import Exchange
from headwater.server.http.topic_handlers import answer


def _read_reports(engine: Engine) -> Operation[Reports]:
    core = engine.core
    reports: Reports = yield InFiles(partial(read_reports, core.disk, core.directory))
    return reports


async def list_jobs(backend: Backend, exchange: Exchange) -> None:
    reports = await backend.ready_database.drive(_read_reports(backend.engine))
    runs = [msgspec.structs.asdict(report) for report in reports.kept]
    answer(exchange, 200, {"runs": runs, "unreadable": reports.unreadable})
