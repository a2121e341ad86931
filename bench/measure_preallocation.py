"""Why files are made ahead by writing zeros: the first write into reserved space costs more."""

from __future__ import annotations

from bench.measure_appends import measured
from bench.raw_disk import RawWrites
from bench.registry import Row, Run, benchmark
from bench.turns import latency_us
from headwater.core.units import KIB


@benchmark("preallocation", "What does a commit cost in a file of zeros and in reserved space?")
def preallocation(run: Run) -> list[Row]:
    sizes = (4 * KIB, 32 * KIB)
    contenders = {
        (size, zeros): RawWrites(
            run.directory / f"{size}-{zeros}", run.file_bytes, size, zeros=zeros
        )
        for size in sizes
        for zeros in (True, False)
    }
    names = {
        key: f"{'zeros' if key[1] else 'fallocate'}, {key[0] // KIB} KiB" for key in contenders
    }
    turns = measured(run, {names[key]: writes for key, writes in contenders.items()})
    rows = []
    for size in sizes:
        pair = []
        for zeros in (True, False):
            own = turns[names[size, zeros]]
            told = {
                "payload": f"{size // KIB} KiB",
                "durability": "fsync",
                "call": "pwrite + fdatasync",
                "p99": f"{latency_us(own, 99):,.0f} us",
            }
            pair.append(Row(names[size, zeros], latency_us(own, 50), "us p50", told))
        rows += [pair[0], pair[1].against(pair[0])]
    return rows
