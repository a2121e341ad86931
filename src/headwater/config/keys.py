"""Every setting of the server that can be given from outside, declared once.

One name, three spellings: `segment_max_bytes` in a file, `HEADWATER_SEGMENT_MAX_BYTES` in the
environment, and `--segment-max-bytes` for those the command line takes. `place` says which field
of which section it fills; the default is that field's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from headwater.config.machines import read_fsync_policy
from headwater.core.limits import (
    INTEGER_MAX,
    NAME_PATTERN,
    PARTITION_PREFIX,
    RECORD_BYTES_MAX,
)
from headwater.core.units import GIB, MIB

ENVIRONMENT_PREFIX: Final = "HEADWATER_"
T = TypeVar("T")


class NotThatError(ValueError):
    """What was given cannot be this setting; the message says what it must be."""


@dataclass(frozen=True, slots=True)
class Key:
    name: str
    place: str
    """The section whose field of this name it fills, or section.field where that is called
    otherwise; several, joined by a comma, are filled alike."""
    read: Callable[[object], Any]
    meaning: str
    secret: bool = False

    @property
    def path(self) -> str:
        return self.place if "." in self.place else f"{self.place}.{self.name}"

    @property
    def variable(self) -> str:
        return ENVIRONMENT_PREFIX + self.name.upper()

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")


def whole(low: int, high: int = INTEGER_MAX) -> Callable[[object], int]:
    """A whole number between two bounds."""
    wanted = f"a whole number from {low} to {high}"
    if high == INTEGER_MAX:
        wanted = f"a whole number, {low} or more"

    def read(given: object) -> int:
        number = given
        if isinstance(given, str):
            try:
                number = int(given.strip())
            except ValueError:
                raise NotThatError(wanted) from None
        if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= high:
            raise NotThatError(wanted)
        return number

    return read


def number(fits: Callable[[float], bool], wanted: str) -> Callable[[object], float]:
    """A number that fits, whole or not."""

    def read(given: object) -> float:
        try:
            found = float(given) if isinstance(given, (str, int, float)) else math.nan
        except ValueError:
            found = math.nan
        if isinstance(given, bool) or not fits(found):
            raise NotThatError(wanted)
        return found

    return read


def yes_or_no(given: object) -> bool:
    if isinstance(given, bool):
        return given
    words = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
    value = words.get(str(given).strip().lower())
    if value is None:
        raise NotThatError("true or false")
    return value


def text(given: object) -> str:
    if not isinstance(given, str) or not given.strip():
        raise NotThatError("a text that is not empty")
    return given.strip()


def port(given: object) -> int:
    if isinstance(given, str) and given.startswith("tcp://"):
        raise NotThatError(
            "a port (Kubernetes sets such a variable for a service of this name; "
            "enableServiceLinks: false turns that off)"
        )
    return whole(0, 65_535)(given)


def or_off(read: Callable[[object], T]) -> Callable[[object], T | None]:
    """The same, or `off` for none."""

    def read_or_off(given: object) -> T | None:
        if given is False or (isinstance(given, str) and given.strip().lower() == "off"):
            return None
        try:
            return read(given)
        except NotThatError as error:
            raise NotThatError(f"{error}, or off") from error

    return read_or_off


def host_and_port(given: object) -> str:
    host, _, number = text(given).rpartition(":")
    if not host or not number.isdecimal() or not 0 < int(number) <= 65_535:
        raise NotThatError("host:port")
    return text(given)


def topic(given: object) -> str:
    name = text(given)
    if NAME_PATTERN.fullmatch(name) is None or name.startswith(PARTITION_PREFIX):
        raise NotThatError("the name of a topic")
    return name


def secrets_list(given: object) -> tuple[str, ...]:
    """Keys one after the other: separated by commas or lines, or a list. # begins a remark."""
    if isinstance(given, str):
        lines = [line.partition("#")[0] for line in given.splitlines()]
        given = [part for line in lines for part in line.split(",")]
    if not isinstance(given, list) or not all(isinstance(part, str) for part in given):
        raise NotThatError("keys, separated by commas or lines, or @ and the name of a file")
    return tuple(part.strip() for part in given if part.strip())


def names(given: object) -> tuple[str, ...]:
    """Names one after the other, written as keys are."""
    try:
        return secrets_list(given)
    except NotThatError:
        raise NotThatError("names, separated by commas or lines") from None


def one_of(*words: str) -> Callable[[object], str]:
    def read(given: object) -> str:
        word = str(given).strip().lower()
        if word not in words:
            raise NotThatError(f"one of {', '.join(words)}")
        return word

    return read


AMOUNT: Final = whole(0)
COUNT: Final = whole(1)
SECONDS: Final = number(lambda found: 0 < found <= 86_400, "seconds, above 0 and at most 86400")
SHARE: Final = number(lambda found: 0 <= found <= 1, "a number from 0 to 1")

KEYS: Final[tuple[Key, ...]] = (
    Key("host", "server", text, "address to listen on"),
    Key("port", "server", port, "port to listen on; 0 picks a free one"),
    Key("port_file", "server", text, "file for the bound ports, as JSON, once ready"),
    Key("metrics_port", "server", port, "metrics on a port of their own"),
    Key("rcpx_port", "server", or_off(port), "state machines over RCPX; or off"),
    Key("kafka_port", "server", or_off(port), "Kafka clients; or off"),
    Key(
        "kafka_advertised",
        "server",
        host_and_port,
        "host:port that Kafka's answers name; otherwise the address a client connected to",
    ),
    Key(
        "kafka_users",
        "server",
        secrets_list,
        "name:password[:organisation[:scopes]], several; or @ and the name of a file with them",
        secret=True,
    ),
    Key(
        "kafka_auto_create_topics",
        "server",
        yes_or_no,
        "create Kafka topics when clients request them",
    ),
    Key(
        "kafka_default_partitions",
        "server",
        whole(1, 10_000),
        "partitions of a Kafka topic when its creator names no number",
    ),
    Key("data_dir", "top", text, "the data directory"),
    Key("log_json", "top", yes_or_no, "log one JSON object a line"),
    Key(
        "log_level",
        "top",
        one_of("debug", "info", "warning", "error"),
        "the lowest level that is logged",
    ),
    Key(
        "api_keys",
        "server",
        secrets_list,
        "secret[:scopes[:prefixes[:org=number]]], several; or @ and the name of a file with them",
        secret=True,
    ),
    Key(
        "allow_insecure_no_auth",
        "server",
        yes_or_no,
        "listen publicly without keys: every client may then do everything",
    ),
    Key(
        "allowed_hosts",
        "server",
        names,
        "host names by which browsers may use a server without keys",
    ),
    Key(
        "allowed_origins",
        "server",
        names,
        "scheme://host[:port] of other sites whose pages may use it",
    ),
    Key("tls_certificate", "server", text, "file with the certificate chain"),
    Key("tls_key", "server", text, "file with its key"),
    Key(
        "workers",
        "server",
        whole(0, 64),
        "processes for connections; 0: one for all",
    ),
    Key("wal_shards", "wal.shards", whole(1, 256), "write-ahead log shards"),
    Key(
        "wal_file_bytes",
        "wal.file_bytes",
        whole(65_536, 4 * GIB),
        "size of a file of the write-ahead log",
    ),
    Key("cold_dir", "engine.cold_url", text, "directory of the cold tier, for sealed segments"),
    Key("cold_url", "engine", text, "object store of the cold tier, s3://bucket/prefix"),
    Key("segment_max_events", "segments", COUNT, "records of a segment before it is sealed"),
    Key(
        "segment_max_bytes", "segments", whole(1, 2 * GIB), "bytes of a segment before it is sealed"
    ),
    Key("segment_max_age_ms", "segments", AMOUNT, "age at which a segment is sealed; 0 = any"),
    Key("hot_retain_segments", "segments", AMOUNT, "newest segments kept out of the cold tier"),
    Key("hot_retain_bytes", "segments", AMOUNT, "bytes kept out of the cold tier; 0 = any"),
    Key(
        "rewrite_dead_ratio",
        "segments",
        SHARE,
        "share of deleted bytes at which a segment is rewritten",
    ),
    Key("cache_bytes", "engine", AMOUNT, "newest payloads kept in memory"),
    Key(
        "tail_bytes_max",
        "engine",
        COUNT,
        "bytes only in the write-ahead log; beyond it the server refuses writes",
    ),
    Key(
        "replay_frames_max",
        "engine",
        COUNT,
        "frames a start replays before it takes a snapshot at once",
    ),
    Key("snapshot_interval_ms", "engine", COUNT, "time between snapshots"),
    Key("wait_us_min", "engine", AMOUNT, "waits from here on are kept for a trace; 0 = none"),
    Key("reader_threads", "engine", whole(1, 256), "threads that read files"),
    Key("limit_topics", "limits.topics,engine.topics_max", COUNT, "topics"),
    Key("limit_routers", "engine.routers_max", COUNT, "routers"),
    Key("limit_watch_sessions", "limits.watch_sessions", COUNT, "watch sessions"),
    Key("limit_streams", "limits.streams", COUNT, "open streams"),
    Key("limit_streams_per_key", "limits.streams_per_key", COUNT, "open streams of one key"),
    Key("limit_in_flight_per_key", "limits.in_flight_per_key", COUNT, "unanswered writes of a key"),
    Key(
        "limit_reserved_share",
        "limits.reserved_share",
        SHARE,
        "share of sessions, streams and connections reserved in equal parts for each key",
    ),
    Key("limit_body_bytes", "limits.body_bytes", COUNT, "bytes of a request's body"),
    Key(
        "limit_record_bytes",
        "limits.record_bytes",
        whole(1, RECORD_BYTES_MAX),
        "bytes of one record",
    ),
    Key("limit_total_bytes", "engine.total_bytes_max", AMOUNT, "live bytes of all topics; 0 = any"),
    Key(
        "limit_kafka_request_bytes",
        "limits.kafka_request_bytes",
        whole(65_536, GIB),
        "bytes of a Kafka request",
    ),
    Key(
        "limit_kafka_partitions", "limits.kafka_partitions", COUNT, "partitions of all Kafka topics"
    ),
    Key("limit_header_bytes", "limits.header_bytes", whole(1024), "bytes of a request's headers"),
    Key("limit_connections", "limits.connections", COUNT, "open connections"),
    Key("deadline_headers_s", "deadlines.headers_s", SECONDS, "time for the headers of a request"),
    Key("deadline_body_s", "deadlines.body_s", SECONDS, "time for the body of a request"),
    Key(
        "deadline_idle_s", "deadlines.idle_s", SECONDS, "time between two requests of a connection"
    ),
    Key(
        "deadline_drain_s",
        "deadlines.drain_s",
        SECONDS,
        "time to finish requests when the server stops",
    ),
    Key(
        "machine_fsync_policy",
        "machines.fsync_policy",
        read_fsync_policy,
        "every_write, never, every_n:N or every_ms:N",
    ),
    Key(
        "machine_segment_bytes",
        "machines.wal_segment_bytes",
        whole(65_536, 4 * GIB),
        "size of a file of the machines' log",
    ),
    Key(
        "machine_entry_header_checksum",
        "machines.entry_header_checksum",
        yes_or_no,
        "write a header checksum behind each entry of the machines' log",
    ),
    Key(
        "machine_versions_max", "machines.versions_max", AMOUNT, "versions of one machine; 0 = any"
    ),
    Key(
        "machine_ids_reused",
        "machines.ids_may_be_reused",
        yes_or_no,
        "allow ids of deleted instances again",
    ),
    Key(
        "machine_transitions_topic",
        "machines.transitions_topic",
        or_off(topic),
        "topic that every transition is written to, or off",
    ),
    Key(
        "machine_idempotency_window_ms",
        "machines.idempotency_window_ms",
        COUNT,
        "how long keys of requests are remembered",
    ),
    Key(
        "machine_idempotency_bytes_max",
        "machines.idempotency_bytes_max",
        whole(MIB),
        "memory for these keys; beyond it the oldest are forgotten",
    ),
    Key(
        "machine_history_max",
        "history.transitions_max",
        AMOUNT,
        "history entries of an instance kept beyond the log; 0 = none",
    ),
    Key("machine_history_age_ms", "history.age_ms", AMOUNT, "age of history entries; 0 = any age"),
    Key("machine_history_bytes", "history.bytes_max", AMOUNT, "bytes of all history entries"),
    Key(
        "machine_instance_snapshots_max",
        "machines.instance_snapshots_max",
        AMOUNT,
        "snapshots of single instances that are kept; 0 = any",
    ),
    Key(
        "machine_instance_snapshots_age_ms",
        "machines.instance_snapshots_age_ms",
        AMOUNT,
        "how long these snapshots are kept; 0 = for ever",
    ),
    Key(
        "machine_allow_flush_all",
        "machines.allow_flush_all",
        yes_or_no,
        "allow FLUSH_ALL over RCPX",
    ),
    Key("compaction_enabled", "compaction.enabled", yes_or_no, "compact the machines' log"),
    Key("compaction_events", "compaction.events_threshold", COUNT, "compact after so many entries"),
    Key(
        "compaction_bytes",
        "compaction.size_threshold_bytes",
        COUNT,
        "compact after so many bytes of log",
    ),
    Key(
        "compaction_interval_ms",
        "compaction.min_interval_ms",
        COUNT,
        "time between two compactions",
    ),
    Key(
        "webhooks",
        "server",
        secrets_list,
        "[machine=]URL, several: the server posts every transition there",
        secret=True,
    ),
    Key("webhook_secret", "server", text, "key of the signatures of webhook posts", secret=True),
    Key(
        "session_ttl_ms",
        "server",
        whole(1_000),
        "how long a watch session is kept without a reader",
    ),
)

KEY_OF: Final = {key.name: key for key in KEYS}
