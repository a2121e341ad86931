"""`headwater serve --workers N`: this process supervises, and forks the sequencer and gateways."""

from __future__ import annotations

import gc

from headwater.cli.server_run import run_on_loop, run_server, settle_memory
from headwater.config.loading import Settings
from headwater.core.clock import SystemClock
from headwater.observe.logs import Logger
from headwater.server.access.access import Access
from headwater.server.gateway.gateway import Gateway, GatewayPlan
from headwater.server.gateway.inheritance import Inheritance, inherit
from headwater.server.gateway.processes import ForkedProcesses
from headwater.server.gateway.supervisor import SEQUENCER, Supervisor
from headwater.server.ports import connections_possible
from headwater.server.server import refuse_public_without_keys


def run_with_workers(settings: Settings) -> int:
    """Until a signal stops it, or the sequencer ends; gives the exit code.

    All modules are loaded by now: children share their memory, and one that is started again does
    so at once.
    """
    refuse_public_without_keys(settings.server)
    Access(settings.server)  # what is wrong with keys is told once, not by every process
    connections_max = min(settings.server.limits.connections, connections_possible())
    inherited = inherit(settings.server, settings.server.workers)
    gc.freeze()
    supervisor = Supervisor(
        inherited.slots,
        ForkedProcesses(),
        SystemClock(),
        Logger("headwater.supervisor"),
        inherited.stop_listening,
    )
    role = supervisor.run()
    if role is None:
        return supervisor.exit_code
    if role.slot == SEQUENCER:
        inherited.keep_for_sequencer()
        run_server(settings, inherited)
    else:
        _run_gateway(settings, inherited, role.slot, connections_max)
    return 0


def _run_gateway(
    settings: Settings, inherited: Inheritance, slot: int, connections_max: int
) -> None:
    settle_memory()
    address = inherited.address
    plan = GatewayPlan(
        settings.server,
        slot,
        inherited.keep_for_gateway(slot),
        address,
        inherited.slots,
        inherited.tls,
        inherited.alive[0],
        connections_max,
    )
    run_on_loop(_serve(plan))


async def _serve(plan: GatewayPlan) -> None:
    await Gateway(plan).run()
