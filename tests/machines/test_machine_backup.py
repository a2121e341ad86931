"""`headwater backup` takes machines along, also while it applies and compacts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

import msgspec
import pytest

import headwater
from headwater.config.engine import EngineSettings
from headwater.config.machines import CompactionSettings, MachineSettings
from headwater.core.clock import SystemClock
from headwater.core.errors import DamageError
from headwater.disk import PosixDisk
from headwater.engine.backup import RestorePoint, make_backup, restore_backup, verify_backup
from headwater.engine.backup.archive import ArchiveReader, ArchiveWriter
from headwater.engine.backup.machine_files import MachineCopier, read_every_entry
from headwater.engine.machines.recovery import inspect_machines
from headwater.format.backup import BACKUP_VERSION, Manifest, is_member_name
from headwater.store.segment import SegmentChangedError
from headwater.testing import FakeDisk
from tests.machines.conftest import ORDER
from tests.rig.machines import ORDER as STEPPED_ORDER
from tests.rig.machines import PLACE, SMALL, SteppedStore, new_disk
from tests.server.running_server import SMALL_ENGINE, eventually, running, settings

BUSY = MachineSettings(
    wal_segment_bytes=32 * 1024,
    reserve_bytes=1_024,
    zero_chunk_bytes=32 * 1024,
    feed_interval_ms=5,
    keep_interval_ms=5,
    compaction=CompactionSettings(events_threshold=200, min_interval_ms=50),
)
ENGINE = replace(SMALL_ENGINE, machines=BUSY)
ROUND = ("PAY", "SHIP", "CLOSE", "AGAIN")


def silent(_: int) -> Any:
    return lambda _bytes: None


def back_up(source: Path, file: Path) -> Any:
    return make_backup(
        PosixDisk(), PurePath(source), PurePath(file), EngineSettings(), SystemClock(), silent
    )


def restore(file: Path, target: Path, point: RestorePoint | None = None) -> None:
    point = point or RestorePoint({}, None)
    restore_backup(PosixDisk(), PurePath(file), PurePath(target), point, SystemClock(), silent)


def paid_and_cancelled(machines: Any, number: int) -> int:
    """One event; gives its place in the log."""
    event = "PAY" if number % 2 == 0 else "CANCEL"
    applied = machines.apply_event("order-1", event, {"n": number})
    return int(applied.wal_offset)


def wait_until_fed(database: Any) -> None:
    room = database.engine.machines
    eventually(lambda: room.feeder.position >= room.store.committed_offset)


def transitions_in(database: Any) -> list[int]:
    found = database.watch("machines:transitions", idle_ms=0)
    return [record.data["wal_offset"] for record in found]


def test_a_backup_under_load_holds_every_event_acked_before_it(tmp_path: Path) -> None:
    stop, acked = threading.Event(), [0]
    places: list[int] = []

    def write(port: int) -> None:
        with headwater.Client(f"http://127.0.0.1:{port}") as client:
            while not stop.is_set():
                places.append(paid_and_cancelled(client.machines, acked[0]))
                acked[0] += 1

    promises = []
    with running(tmp_path / "data", settings(), engine_settings=ENGINE) as server:
        with headwater.Client(f"http://127.0.0.1:{server.port}") as client:
            client.machines.put_machine("order", 1, ORDER)
            client.machines.create_instance("order", 1, "order-1", {"amount": 1})
        thread = threading.Thread(target=write, args=(server.port,))
        thread.start()
        try:
            for number in range(3):
                while acked[0] < (number + 1) * 250:
                    assert thread.is_alive()
                    stop.wait(0.001)
                promises.append(acked[0])
                back_up(tmp_path / "data", tmp_path / f"{number}.tar")
        finally:
            stop.set()
            thread.join()
        store = server.app.backend.engine.machines.store
        assert store is not None
        assert store.compactor.count > 1
    for number, promised in enumerate(promises):
        verify_backup(PosixDisk(), PurePath(tmp_path / f"{number}.tar"), SystemClock(), silent)
        restore(tmp_path / f"{number}.tar", tmp_path / f"back-{number}")
        with headwater.open(tmp_path / f"back-{number}", settings=ENGINE) as database:
            found = database.machines.get_instance("order-1")
            count = found.ctx["n"] + 1
            assert promised <= count
            assert found.last_wal_offset == places[count - 1]
            database.machines.apply_event("order-1", "PAY" if count % 2 == 0 else "CANCEL", {})
        # A start took to the topic what it did not have yet: every transition, each once.
        with headwater.open(tmp_path / f"back-{number}", settings=ENGINE) as database:
            wait_until_fed(database)
            told = transitions_in(database)
        assert told[:count] == places[:count]
        assert len(told) == count + 1


def copied(
    disk: FakeDisk, archive: ArchiveWriter, name: str, between: Callable[[], None]
) -> PurePath:
    """Both steps, and the result unpacked."""
    copier = MachineCopier(disk, archive, PLACE.parent)
    for _ in range(50):
        copier.copy_before(lambda: None)
        between()
        try:
            members = copier.copy_after()
        except (SegmentChangedError, FileNotFoundError):
            continue
        break
    else:
        raise AssertionError("it never came to an end")
    archive.finish(Manifest(BACKUP_VERSION, 0, tuple(members), ()))
    disk.make_directory(PurePosixPath(name))
    reader = ArchiveReader(disk, PurePosixPath(f"{name}.tar"))
    for member in reader.manifest.members:
        path = PurePosixPath(name) / member.name
        for parent in reversed(path.relative_to("/").parents):
            disk.make_directory(PurePosixPath("/") / parent)
        disk.write_file(path, b"".join(reader.read(member)).ljust(member.file_bytes, b"\0"))
    return PurePosixPath(name)


def test_compaction_between_any_two_steps_leaves_a_whole_copy() -> None:
    """Events and compactions at each moment of a copy: what is unpacked is a state there was."""
    disk = new_disk()
    store = SteppedStore(disk, SMALL)
    store.do(lambda: store.put_machine("order", 1, STEPPED_ORDER))
    store.do(lambda: store.create_instance("order", 1, "a", {"total": 5}))
    done = 0

    def apply(times: int) -> None:
        nonlocal done
        for _ in range(times):
            store.do(partial(store.apply_event, "a", ROUND[done % 4], {"n": done}))
            done += 1

    apply(20)
    store.compact()
    apply(20)
    for moment in range(20):
        pieces, acked = 0, done

        def busy() -> None:
            apply(13)
            store.compact()
            apply(11)

        def between(moment: int = moment, acked: int = acked) -> None:
            if moment == 0 and done == acked:
                busy()

        def advance(_: int, moment: int = moment) -> None:
            nonlocal pieces
            pieces += 1
            if pieces == moment:
                busy()

        where = f"/data/{moment}"
        archive = ArchiveWriter(disk, PurePosixPath(f"{where}.tar"), 0, advance)
        place = copied(disk, archive, where, between)
        found = inspect_machines(disk, place / "machines", SMALL).tables
        instance = found.instances["a"]
        told = msgspec.json.decode(instance.ctx)["n"]
        assert acked - 1 <= told < done
        assert read_every_entry(disk, place) > 0
        apply(9)


def test_positions_and_snapshots_of_instances_come_along(tmp_path: Path) -> None:
    hook = "http://127.0.0.1:9/never"
    data = tmp_path / "data"
    with (
        running(data, settings(webhooks=(hook,)), engine_settings=ENGINE) as server,
        headwater.Client(f"http://127.0.0.1:{server.port}") as client,
    ):
        client.machines.put_machine("order", 1, ORDER)
        client.machines.create_instance("order", 1, "order-1", {"amount": 1})
        client.machines.snapshot_instance("order-1")
        client.machines.compact()
    back_up(data, tmp_path / "b.tar")
    restore(tmp_path / "b.tar", tmp_path / "back")

    def files(place: Path) -> dict[str, bytes]:
        found = (path for path in (place / "machines").rglob("*") if path.is_file())
        return {str(path.relative_to(place)): path.read_bytes() for path in found}

    wanted = {name: held for name, held in files(data).items() if not name.endswith("LOCK")}
    assert files(tmp_path / "back") == wanted
    kinds = {PurePath(name).parent.name for name in wanted}
    assert kinds == {"machines", "wal", "snapshots", "webhooks"}


def test_a_point_in_time_leaves_the_machines_as_they_are(tmp_path: Path) -> None:
    with headwater.open(tmp_path / "data", settings=ENGINE) as database:
        database.machines.put_machine("order", 1, ORDER)
        database.machines.create_instance("order", 1, "order-1", {"amount": 1})
        paid_and_cancelled(database.machines, 0)
        database.append("orders", [{"data": 1}, {"data": 2}], create=True)
    back_up(tmp_path / "data", tmp_path / "b.tar")
    restore(tmp_path / "b.tar", tmp_path / "back", RestorePoint({"orders": 1}, None))
    with headwater.open(tmp_path / "back", settings=ENGINE) as database:
        assert database.machines.get_instance("order-1").state == "paid"
        assert [record.data for record in database.diff("orders", 0).records] == [1]


def test_damage_from_before_the_backup_is_found_by_verifying(tmp_path: Path) -> None:
    with headwater.open(tmp_path / "data", settings=ENGINE) as database:
        database.machines.put_machine("order", 1, ORDER)
        database.machines.create_instance("order", 1, "order-1", {"amount": 1})
        for number in range(4):
            paid_and_cancelled(database.machines, number)
    (log,) = (tmp_path / "data" / "machines" / "wal").glob("*.wal")
    contents = bytearray(log.read_bytes())
    contents[contents.index(b"order-1") + 2] ^= 1
    log.write_bytes(contents)
    back_up(tmp_path / "data", tmp_path / "b.tar")
    with pytest.raises(DamageError, match=r"damage|CRC|checksum"):
        verify_backup(PosixDisk(), PurePath(tmp_path / "b.tar"), SystemClock(), silent)


def test_a_log_without_its_first_segment_is_refused_by_a_restore(tmp_path: Path) -> None:
    with headwater.open(tmp_path / "data", settings=ENGINE) as database:
        database.machines.put_machine("order", 1, ORDER)
        database.machines.create_instance("order", 1, "order-1", {"amount": 1})
        while len(list((tmp_path / "data" / "machines" / "wal").glob("*.wal"))) < 2:
            paid_and_cancelled(
                database.machines, len(database.machines.history("order-1").entries) - 1
            )
    log = tmp_path / "data" / "machines"
    sorted((log / "wal").glob("*.wal"))[0].unlink()
    for snapshot in (log / "snapshots").iterdir():
        snapshot.unlink()
    back_up(tmp_path / "data", tmp_path / "b.tar")
    with pytest.raises(DamageError):
        restore(tmp_path / "b.tar", tmp_path / "back")
    assert not (tmp_path / "back").exists()


@pytest.mark.parametrize(
    "name", ["LOCK", "wal/next.tmp", "webhooks/x.json", "snapshots/../FED", "wal/a/b", "deep/FED"]
)
def test_names_that_are_not_of_machines_are_refused(name: str) -> None:
    assert not is_member_name(f"machines/{name}")


def test_histories_that_outlived_the_log_are_in_the_backup(tmp_path: Path) -> None:
    quiet = replace(BUSY, compaction=CompactionSettings(enabled=False), transitions_topic=None)
    engine = replace(SMALL_ENGINE, machines=quiet)
    source, target, file = tmp_path / "source", tmp_path / "target", tmp_path / "b.backup"
    with headwater.open(source, settings=engine) as database:
        machines = database.machines
        machines.put_machine("order", 1, STEPPED_ORDER)
        machines.create_instance("order", instance_id="a", context={"total": 1})
        for _ in range(20):
            for event in ROUND:
                machines.apply_event("a", event, {"text": "x" * 500})
        machines.compact()
        assert machines.compact().segments_deleted > 0, "the log before the snapshot before"
        whole = machines.history("a", limit=100)
        assert whole.complete
    back_up(source, file)
    restore(file, target)
    with headwater.open(target, settings=engine) as database:
        assert database.machines.history("a", limit=100) == whole
