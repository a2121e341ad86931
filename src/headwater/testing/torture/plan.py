"""What a seed means: lives, rounds, settings, faults and ends.

Everything that is chosen is chosen here or with a `Random` made here, so that the same seed plans
the same run.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from random import Random

from headwater.testing.torture import server_process
from headwater.testing.torture.outcome import End

ENDS = ((End.KILL, 6), (End.STOP, 2), (End.POWER_LOSS, 3))
KILLED_STARTS_MAX = 3
FSYNC_POLICIES = ("every_write", "every_write", "every_n:10", "every_ms:50", "never")
WEEK_MS = 604_800_000
LOAD_S = (1.5, 5.0)
CLOCK_JUMPS_MS = (-86_400_000, -3_600_000, -5_000, 0, 5_000, 3_600_000, 86_400_000)


@dataclass(frozen=True, slots=True)
class RoundPlan:
    number: int
    load_s: float
    end: End
    killed_starts: tuple[float, ...]
    """The server is started and killed after so many seconds, ready or not, before this round."""
    is_power_lost_at_start: bool
    """The last of these starts ends with the power, not with a kill."""
    pauses: tuple[tuple[float, float], ...]
    """SIGSTOP at this second of the load, SIGCONT so much later."""
    clock_jumps: tuple[tuple[float, int], ...]
    """At this second of the load the wall clock is so many ms from the true one."""
    is_disk_filled: bool
    has_backup: bool
    is_verified: bool
    """`headwater verify` runs before the start."""
    is_embedded: bool
    """The embedded library has the directory for a moment before the start."""
    flags: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LifePlan:
    number: int
    rounds: tuple[RoundPlan, ...]
    is_on_image: bool
    has_cold_tier: bool


def random_of(seed: int, *path: object) -> Random:
    """One for each purpose, so that one more choice somewhere does not change the others."""
    return Random(":".join(map(str, (seed, *path))))


def plan_life(seed: int, number: int, rounds: int, *, images: bool) -> LifePlan:
    random = random_of(seed, "life", number)
    is_on_image = images and (seed + number) % 2 == 0
    planned = tuple(
        plan_round(random_of(seed, "round", number, each), each, is_on_image=is_on_image)
        for each in range(rounds)
    )
    return LifePlan(number, planned, is_on_image, random.random() < 0.4)


def plan_round(random: Random, number: int, *, is_on_image: bool) -> RoundPlan:
    load_s = random.uniform(*LOAD_S)
    ends = [(end, weight) for end, weight in ENDS if is_on_image or end is not End.POWER_LOSS]
    (end,) = random.choices([end for end, _ in ends], [weight for _, weight in ends])
    killed_starts = 0 if random.random() < 0.7 else random.randint(1, KILLED_STARTS_MAX)
    flags, environment = choose_settings(random)
    if not is_on_image:  # a killed process loses nothing that was answered, whatever the policy
        environment["HEADWATER_MACHINE_FSYNC_POLICY"] = random.choice(FSYNC_POLICIES)
    return RoundPlan(
        number,
        load_s,
        end,
        tuple(random.uniform(0.05, 1.2) for _ in range(killed_starts)),
        is_on_image and random.random() < 0.4,
        ((random.uniform(0, load_s), random.uniform(0.05, 1.0)),) if random.random() < 0.3 else (),
        tuple(
            (random.uniform(0, load_s), random.choice(CLOCK_JUMPS_MS))
            for _ in range(random.choice((0, 0, 0, 1, 2)))
        ),
        is_on_image and random.random() < 0.2,
        end is not End.POWER_LOSS and random.random() < 0.15,
        random.random() < 0.25,
        random.random() < 0.25,
        flags,
        environment,
    )


def choose_settings(random: Random) -> tuple[tuple[str, ...], dict[str, str]]:
    """Flags and environment of one start. Small, so that everything happens all the time."""

    def one_of(*values: float) -> str:
        return str(random.choice(values))

    environment = {
        "HEADWATER_WAL_FILE_BYTES": one_of(262_144, 1_048_576, 4_194_304),
        "HEADWATER_SEGMENT_MAX_EVENTS": one_of(50, 500, 5_000),
        "HEADWATER_SEGMENT_MAX_BYTES": one_of(20_000, 1_000_000),
        "HEADWATER_SEGMENT_MAX_AGE_MS": one_of(0, 3_000, 3_600_000),
        "HEADWATER_HOT_RETAIN_SEGMENTS": one_of(0, 1, 4),
        "HEADWATER_REWRITE_DEAD_RATIO": one_of(0.1, 0.5, 0.9),
        "HEADWATER_CACHE_BYTES": one_of(0, 20_000, 67_108_864),
        "HEADWATER_SNAPSHOT_INTERVAL_MS": one_of(200, 2_000, 60_000),
        "HEADWATER_READER_THREADS": one_of(1, 4),
        "HEADWATER_MACHINE_SEGMENT_BYTES": one_of(65_536, 1_048_576),
        "HEADWATER_COMPACTION_EVENTS": one_of(50, 500, 10_000),
        "HEADWATER_COMPACTION_INTERVAL_MS": one_of(100, 2_000, 60_000),
        # Longer than any jump of the clock: a key that is forgotten in time promises nothing.
        "HEADWATER_MACHINE_IDEMPOTENCY_WINDOW_MS": str(WEEK_MS),
    }
    engine = {
        "checkpoint_interval_ms": random.choice((50, 300, 1_000)),
        "checkpoint_tail_bytes": random.choice((1_000, 100_000, 4_194_304)),
        "snapshot_wal_bytes": random.choice((50_000, 1_000_000, 67_108_864)),
    }
    kafka = {
        "segment_bytes": random.choice((65_536, 1_048_576, 1_073_741_824)),
        "log_ahead_bytes": random.choice((4_096, 65_536, 1_048_576)),
        "index_ahead_bytes": random.choice((4_096, 262_144)),
        "checkpoint_bytes": random.choice((20_000, 1_000_000, 67_108_864)),
        "synced_event_bytes": random.choice((4_096, 1_048_576)),
        "maintenance_interval_ms": random.choice((50, 1_000)),
        "cache_bytes": random.choice((0, 67_108_864)),
    }
    environment[server_process.ENGINE] = json.dumps(engine)
    environment[server_process.KAFKA] = json.dumps(kafka)
    shards, workers = random.choice((1, 1, 2, 3, 4)), random.choice((0, 0, 1, 2))
    return ("--wal-shards", str(shards), "--workers", str(workers)), environment
