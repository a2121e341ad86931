"""Topics over a real socket: settings, looking, listing, deleting, dropping."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.raw_http import RawHttp

DEFAULTS: dict[str, Any] = {
    "type": "log", "ttl_ms": 0, "cap_records": 0, "cap_bytes": 0, "discard": "old",
    "durability": "fsync", "durable": True, "priority": None, "auto_priority": True,
    "auto_create": True, "idempotency_window_ms": 120_000, "dedupe_node": True,
    "lease_ms": 30_000, "claim_jitter_ms": 0, "max_deliveries": 0, "dead_letter": None,
    "leases_durable": False,
    "fifo_key": None,
    "paused": False,
}  # fmt: skip


def test_a_topic_is_made_with_the_defaults_of_the_contract(http: RawHttp, topic: str) -> None:
    made = http.put(topic)
    assert made.status == 201
    answer = made.json
    assert answer.pop("performance")["server_total_ms"] > 0
    assert answer == {"topic": topic, "created": True, "config": DEFAULTS}
    again = http.ask("PUT", f"/v0/topics/{topic}")
    assert (again.status, again.json["created"]) == (200, False)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"priority": 5_000}, {"priority": 1_000}),
        ({"priority": -5_000}, {"priority": -1_000}),
        ({"lease_ms": 1}, {"lease_ms": 100}),
        ({"lease_ms": 10**12}, {"lease_ms": 86_400_000}),
        ({"claim_jitter_ms": 9_999}, {"claim_jitter_ms": 5_000}),
        ({"durable": False}, {"durability": "disk", "durable": False}),
        ({"durable": True}, {"durability": "fsync", "durable": True}),
        ({"durable": True, "durability": "memory"}, {"durability": "memory", "durable": False}),
        ({"durability": "ephemeral"}, {"durability": "ephemeral", "durable": False}),
        ({"type": "queue", "dead_letter": "dead", "max_deliveries": 3}, {"dead_letter": "dead"}),
        ({"ttl_ms": 5, "cap_records": 6, "cap_bytes": 7, "discard": "reject"}, {"ttl_ms": 5}),
    ],
)
def test_settings_are_clamped_and_aliased_as_written_down(
    http: RawHttp, topic: str, given: dict[str, Any], shown: dict[str, Any]
) -> None:
    config = http.put(topic, **given).json["config"]
    assert {name: config[name] for name in shown} == shown
    assert http.get(f"/v0/topics/{topic}").json["config"] == config


@pytest.mark.parametrize(
    "given",
    [
        {"nonsense": 1}, {"ttl_ms": -1}, {"ttl_ms": 1.5}, {"ttl_ms": "1"}, {"ttl_ms": 2**53},
        {"discard": "new"}, {"durability": "raid"}, {"type": "stack"}, {"durable": 1},
        {"cap_records": None}, {"dead_letter": "../etc"}, {"priority": "high"},
    ],
)  # fmt: skip
def test_a_wrong_setting_is_refused_by_name_and_makes_nothing(
    http: RawHttp, topic: str, given: dict[str, Any]
) -> None:
    answer = http.put(topic, **given)
    assert (answer.status, answer.code) == (400, "invalid_request")
    assert next(iter(given)) in answer.json["error"]["message"]
    assert answer.json["error"]["detail"]["setting"] == next(iter(given))
    assert http.get(f"/v0/topics/{topic}").status == 404


def test_a_topic_cannot_be_its_own_dead_letter(http: RawHttp) -> None:
    assert http.put("selfish", dead_letter="selfish").code == "invalid_request"


def test_settings_change_on_their_own_and_the_type_never(http: RawHttp, topic: str) -> None:
    http.put(topic, cap_records=5, ttl_ms=60_000)
    assert http.put(topic, cap_records=6).json["config"]["ttl_ms"] == 60_000
    refused = http.put(topic, type="queue")
    assert (refused.status, refused.code) == (409, "topic_exists_incompatible")
    assert http.get(f"/v0/topics/{topic}").json["config"]["cap_records"] == 6


@pytest.mark.parametrize("body", [b"[]", b"1", b"{", b'{"a":' * 100_000, b"\xff"])
def test_settings_that_are_no_object_are_refused(http: RawHttp, topic: str, body: bytes) -> None:
    assert http.ask("PUT", f"/v0/topics/{topic}", body).code == "invalid_request"


def test_looking_at_a_topic_shows_its_numbers(http: RawHttp, topic: str) -> None:
    http.put(topic)
    empty = http.get(f"/v0/topics/{topic}").json
    assert (empty["head_seq"], empty["earliest_seq"], empty["next_seq"]) == (0, 1, 1)
    assert (empty["count"], empty["bytes"], empty["type"]) == (0, 0, "log")
    assert "last_write_ts" not in empty
    http.write(topic, 1, 2, 3)
    http.ask("POST", f"/v0/topics/{topic}/delete", {"before_seq": 3})
    shown = http.get(f"/v0/topics/{topic}").json
    assert (shown["head_seq"], shown["earliest_seq"], shown["count"]) == (3, 3, 1)
    assert shown["bytes"] > 0
    assert shown["last_write_ts"] > 1_600_000_000_000
    assert isinstance(shown["effective_priority"], (int, float))


@pytest.mark.claims(352)
def test_looking_counts_as_reading_unless_told_not_to(http: RawHttp, topic: str) -> None:
    http.put(topic)
    assert "last_read_ts" not in http.get(f"/v0/topics/{topic}?touch=false").json
    assert "last_read_ts" not in http.get(f"/v0/topics?prefix={topic}").json["topics"][0]
    http.get(f"/v0/topics?prefix={topic}&touch=true")
    assert http.get(f"/v0/topics/{topic}?touch=false").json["last_read_ts"] > 0


def test_looking_never_makes_a_topic(http: RawHttp, topic: str) -> None:
    for answer in (http.get(f"/v0/topics/{topic}"), http.diff(topic)):
        assert (answer.status, answer.code) == (404, "topic_not_found")
    assert http.get(f"/v0/topics?prefix={topic}").json["topics"] == []


def test_lists_come_in_pages_by_name(http: RawHttp, topic: str) -> None:
    names = [f"{topic}.{number:03}" for number in range(7)]
    for name in reversed(names):
        http.put(name)
    http.put(topic + "z")
    seen: list[str] = []
    path = f"/v0/topics?prefix={topic}.&page_size=3"
    pages = 0
    page = http.get(path).json
    while True:
        pages += 1
        seen += [each["topic"] for each in page["topics"]]
        if "next_cursor" not in page:
            break
        page = http.get(f"{path}&cursor={page['next_cursor']}").json
    assert (seen, pages) == (names, 3)
    assert page["performance"]["server_total_ms"] > 0
    exactly = http.get(f"/v0/topics?prefix={topic}.&page_size=7").json
    assert "next_cursor" not in exactly
    assert len(http.get(f"/v0/topics?prefix={topic}.&page_size=0").json["topics"]) == 1
    assert len(http.get(f"/v0/topics?prefix={topic}.&page_size=99999").json["topics"]) == 7


@pytest.mark.parametrize("size", ["x", "--1", "%C2%B2", "1.5", "1" * 5_000, "", "1e3", "+1"])
def test_a_page_size_that_is_no_number_is_refused(http: RawHttp, size: str) -> None:
    assert http.get(f"/v0/topics?page_size={size}").code == "invalid_request"


def test_dropping_a_topic_says_whether_there_was_one(http: RawHttp, topic: str) -> None:
    path = f"/v0/topics/{topic}"
    http.write(topic, 1)
    kept = http.ask("DELETE", path + "?if_empty=true")
    assert (kept.status, kept.code) == (409, "topic_not_empty")
    dropped = http.ask("DELETE", path)
    assert (dropped.status, dropped.json["deleted"]) == (200, True)
    assert dropped.json["routers_removed"] == []
    assert http.ask("DELETE", path).json["deleted"] is False
    http.put(topic)
    assert http.ask("DELETE", path + "?if_empty").json["deleted"] is True


def test_records_are_deleted_below_a_seq_by_tag_or_both(http: RawHttp, topic: str) -> None:
    http.write_records(topic, *({"data": n, "tag": f"t{n % 2}"} for n in range(1, 11)))
    path = f"/v0/topics/{topic}/delete"
    both = http.ask("POST", path, {"before_seq": 4, "match": "t1"}).json
    assert both["performance"]["server_total_ms"] > 0
    assert (both["deleted"], both["count"], both["head_seq"], both["earliest_seq"]) == (2, 8, 10, 2)
    assert http.ask("POST", path, {"match": ["tag", "Glob", "t0*"]}).json["deleted"] == 5
    assert http.ask("POST", path, {"before_seq": 10**9}).json["count"] == 0
    found = http.diff(topic).json
    assert (found["records"], found["tombstone"], found["next_from_seq"]) == ([], None, 10)


@pytest.mark.parametrize(
    "body",
    [
        {}, {"before_seq": -1}, {"match": ""}, {"match": ["tag", "Like", "x"]},
        {"match": ["data", "Eq", "x"]}, {"match": "a*b*"}, {"match": ["tag", "Glob", "x"]},
        {"match": ["tag", "Eq"]}, {"before_seq": 1, "other": 1},
    ],
)  # fmt: skip
def test_a_delete_that_is_not_clear_is_refused(
    http: RawHttp, topic: str, body: dict[str, Any]
) -> None:
    http.write_records(topic, {"data": 1, "tag": "x"})
    assert http.ask("POST", f"/v0/topics/{topic}/delete", body).code == "invalid_request"
    assert http.get(f"/v0/topics/{topic}").json["count"] == 1


# -- names

ODD_NAMES = [
    "..", "%2e%2e", "%2e%2e%2fetc%2fpasswd", "a%2fb", "a%00b", "%00", "-a", ".a", "_a", "a%20b",
    "a%0ab", "a%c0%ae", "%e2%80%ae", "a" * 256, "%C3%BC", "a%25", "a;b", "a%3Fb", "%ff", "a*",
    "con%3e", "a%5cb", "%2f%2f", "%2e",
]  # fmt: skip


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_are_refused_in_every_path(http: RawHttp, name: str) -> None:
    path = f"/v0/topics/{name}"
    write = {"records": [{"data": 1}]}
    for method, suffix, body in (
        ("PUT", "", {}), ("POST", "", write), ("GET", "", None), ("DELETE", "", None),
        ("POST", "/diff", {}), ("POST", "/delete", {"before_seq": 1}), ("GET", "/arrow", None),
    ):  # fmt: skip
        answer = http.ask(method, path + suffix, body)
        assert answer.status in (400, 404), (method, suffix, answer)
        assert answer.code in ("invalid_request", "topic_not_found", "not_found")
    assert http.get(f"/v0/watch/{name}").status == 404


def test_good_names_keep_their_case_and_their_signs(http: RawHttp) -> None:
    for name in ("a", "A", "0", "a.b_c:d-e", "a..", "CON", "a" * 255):
        assert http.put(name).status == 201, name
        assert http.get(f"/v0/topics/{name}").json["topic"] == name
    assert http.get("/v0/topics/%61").json["topic"] == "a"


@pytest.mark.parametrize("path", ["/v0/topics", "/v0/routers"])
def test_a_cursor_that_no_page_gave_is_refused(http: RawHttp, topic: str, path: str) -> None:
    for cursor in ("%00%ff", "..%2f", "a%20b", "x" * 256):
        answer = http.get(f"{path}?cursor={cursor}")
        assert (answer.status, answer.code) == (400, "invalid_request"), cursor
    answer = http.get(f"{path}?prefix={topic}&cursor=other")
    assert (answer.status, answer.code) == (400, "invalid_request"), "of another list"
    assert http.get(f"{path}?cursor=").status == 200
