"""Appends a second through the whole write path, beside a bare loop of write and fdatasync."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from bench.log_under_test import body_of
from bench.payloads import PAYLOAD_BYTES
from bench.raw_disk import RawWrites
from bench.registry import Row, Run, benchmark
from bench.turns import Turn, latency_us, median_rate, median_sync_rate, take_turns
from bench.writers import FORMS, loop_name
from headwater.config.wal import WalSettings
from headwater.core.durability import Durability
from headwater.format.mark import MARK_BYTES

FRAME_BYTES = len(body_of(1, 1, 1))


class Checked(Protocol):
    def __call__(self, seconds: float) -> Turn: ...

    def close_and_check(self) -> None: ...


def conditions(durability: str, turns: list[Turn], **more: object) -> dict[str, str]:
    told = {
        "payload": f"{PAYLOAD_BYTES} B",
        "durability": durability,
        **{name: str(value) for name, value in more.items()},
        "fsyncs/s": f"{median_sync_rate(turns):,.0f}",
    }
    if any(turn.latencies_us for turn in turns):
        told["p50"] = f"{latency_us(turns, 50):,.0f} us"
        told["p99"] = f"{latency_us(turns, 99):,.0f} us"
    return told


def measured(run: Run, contenders: Mapping[str, Checked]) -> dict[str, list[Turn]]:
    """Turns of all contenders; only given out when what they wrote could be read back."""
    turns = take_turns(run, contenders)
    for contender in contenders.values():
        contender.close_and_check()
    return turns


def _form(name: str) -> str:
    return name if name == "threads" else f"{name} on one {loop_name()} loop"


def _writers(
    run: Run, form: str, count: int, durability: Durability = Durability.FSYNC, records: int = 1
) -> Checked:
    directory = run.directory / f"{form}-{count}-{durability.value}-{records}"
    settings = WalSettings(file_bytes=run.file_bytes)
    return FORMS[form](directory, settings, count, durability, records)


@benchmark("durable", "How many durable appends a second, with 1, 8 and 64 writers?")
def durable_appends(run: Run) -> list[Row]:
    counts = (1, 8, 64)
    contenders: dict[str, Checked] = {
        "plain loop": RawWrites(run.directory / "plain", run.file_bytes, FRAME_BYTES),
        "plain loop of groups of 64": RawWrites(
            run.directory / "groups", run.file_bytes, MARK_BYTES + 64 * FRAME_BYTES, operations=64
        ),
    }
    for form in FORMS:
        for count in counts:
            contenders[f"{count} {form}"] = _writers(run, form, count)
    turns = measured(run, contenders)

    def row(name: str, **more: object) -> Row:
        told = conditions("fsync", turns[name], **more)
        return Row(name, median_rate(turns[name]), "appends/s", told)

    plain = row("plain loop", writes=f"{FRAME_BYTES} B into zeros")
    groups = row("plain loop of groups of 64", writes="64 frames and a mark into zeros")
    rows = [plain, groups.against(plain)]
    for form in FORMS:
        own = {count: row(f"{count} {form}", form=_form(form)) for count in counts}
        rows += [own[count].against(plain) for count in counts]
        rows += [own[count].against(own[1]) for count in counts[1:]]
        rows.append(own[64].against(groups))
    return rows


@benchmark("disk-class", "How many appends a second when acks wait for the write, not the sync?")
def disk_class_appends(run: Run) -> list[Row]:
    contenders: dict[str, Checked] = {
        "plain loop, no sync": RawWrites(
            run.directory / "plain", run.file_bytes, FRAME_BYTES, sync=False
        )
    }
    for form in FORMS:
        for count in (1, 64):
            contenders[f"{count} {form}"] = _writers(run, form, count, Durability.DISK)
    turns = measured(run, contenders)
    plain, *others = [
        Row(name, median_rate(turns[name]), "appends/s", conditions("disk", turns[name]))
        for name in contenders
    ]
    return [plain, *(other.against(plain) for other in others)]


@benchmark("batches", "How many durable records a second in batches of 100 per ticket?")
def batched_appends(run: Run) -> list[Row]:
    records = 100
    contenders: dict[str, Checked] = {
        "plain loop of batches": RawWrites(
            run.directory / "plain",
            run.file_bytes,
            MARK_BYTES + records * FRAME_BYTES,
            operations=records,
        )
    }
    for form in FORMS:
        for count in (1, 16):
            writers = _writers(run, form, count, Durability.FSYNC, records)
            contenders[f"{count} {form}"] = writers
    turns = measured(run, contenders)
    plain, *others = [
        Row(
            name,
            median_rate(turns[name]),
            "records/s",
            conditions("fsync", turns[name], batch=records),
        )
        for name in contenders
    ]
    return [plain, *(other.against(plain) for other in others)]
