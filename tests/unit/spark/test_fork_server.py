"""Workers out of our nest: what they say when the other side has had enough."""

from __future__ import annotations

import gc
import socket
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pytest

from headwater.spark.runtime.fork_server import frozen_after_first, polite
from headwater.spark.runtime.planner_processes import DAEMON, be_polite


def send(peer: socket.socket, is_known: bool) -> int:
    """A worker as Spark's: 0 when all of it was taken."""
    peer.sendall(b"rows" if is_known else b"")
    return 0


def test_a_worker_that_is_hung_up_on_ends_without_a_word() -> None:
    near, far = socket.socketpair()
    with near:
        with far:
            assert polite(send)(near, True) == 0
        assert polite(send)(near, True) == 1


def test_whatever_else_befalls_a_worker_is_still_told() -> None:
    near, far = socket.socketpair()
    near.close()
    far.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        polite(send)(near, True)


def test_what_a_first_task_loaded_is_put_aside_once(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen: list[str] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append("all"))
    codes = iter((0, 0, 1))
    work = frozen_after_first(lambda *_: next(codes))
    assert [work(None, True) for _ in range(3)] == [0, 0, 1]
    assert frozen == ["all"]


def test_a_worker_of_sparks_own_daemon_is_polite_once_it_knows_us(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def hung_up_on(*_: object) -> int:
        raise BrokenPipeError

    daemon: Any = ModuleType("__main__")
    daemon.worker = hung_up_on
    monkeypatch.setitem(sys.modules, "__main__", daemon)
    be_polite()
    with pytest.raises(BrokenPipeError):
        daemon.worker(None, True)
    daemon.__spec__ = ModuleSpec(DAEMON, None)
    be_polite()
    assert daemon.worker(None, True) == 1
