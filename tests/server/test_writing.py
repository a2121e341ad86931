"""POST /v0/topics/:topic over a real socket: what is taken, what is refused, what is answered."""

from __future__ import annotations

import json

import pytest

from headwater.core import limits
from tests.server.raw_http import RawHttp

PAYLOADS = [
    b"null",
    b"true",
    b'"text"',
    b"-0",
    b"1.0",
    b"1E400",
    b"123456789012345678901234567890.00001",
    b'{"a": 1,   "b":[ ] ,"a":2}',
    b'{ "z":1,\n\t"a":\r\n2 }',
    '{"ü":"日本語 🎉 \u2028"}'.encode(),
    b'"\\u00e9\\n\\ud83d\\ude00 </script>"',
    b'[[[[["deep"]]]],{"":{"":""}}]',
]


@pytest.mark.parametrize("payload", PAYLOADS, ids=range(len(PAYLOADS)))
def test_data_and_meta_come_back_byte_for_byte(http: RawHttp, topic: str, payload: bytes) -> None:
    meta = b'{"m" : ' + payload + b" }"
    body = b'{"records":[{"data":' + payload + b',"meta":' + meta + b"}]}"
    assert http.ask("POST", f"/v0/topics/{topic}", body).status == 201
    assert http.ask("POST", f"/v0/topics/{topic}", body).status == 200
    found = http.diff(topic).body
    assert found.count(b'"data":' + payload + b',"meta":' + meta + b"}") == 2


def test_what_a_record_does_not_have_is_left_out(http: RawHttp, topic: str) -> None:
    http.write_records(
        topic,
        {"data": None},
        {"data": 1, "tag": "t", "node": "n", "meta": {"k": 1}},
        {"data": 2, "tag": None, "node": None, "meta": None},
        {"data": 3, "tag": "", "meta": {}},
    )
    bare, full, nulls, empty = http.diff(topic, include_tags=True).json["records"]
    assert bare == {"$seq": 1, "$ts": bare["$ts"], "data": None}
    assert full == {
        "$seq": 2, "$ts": full["$ts"], "$node": "n", "$tag": "t", "data": 1, "meta": {"k": 1},
    }  # fmt: skip
    assert set(nulls) == {"$seq", "$ts", "data"}
    assert empty["$tag"] == ""
    assert empty["meta"] == {}


def test_a_node_of_the_write_holds_for_records_without_their_own(http: RawHttp, topic: str) -> None:
    http.write_records(topic, {"data": 1}, {"data": 2, "node": "b"}, node="a")
    assert [r["$node"] for r in http.diff(topic).json["records"]] == ["a", "b"]


def test_the_answer_to_a_write_has_everything_the_contract_names(http: RawHttp, topic: str) -> None:
    first = http.write(topic, 1, 2, 3)
    assert first.status == 201
    answer = first.json
    performance = answer.pop("performance")
    assert answer == {
        "topic": topic, "first_seq": 1, "last_seq": 3, "seqs": [1, 2, 3], "head_seq": 3, "count": 3,
        "created": True, "deduped": False,
    }  # fmt: skip
    assert set(performance) == {"server_total_ms", "wal_append_ms", "fsync_ms", "throttle_wait_ms"}
    assert performance["server_total_ms"] >= performance["fsync_ms"] > 0
    second = http.write(topic, 4)
    assert (second.status, second.json["seqs"], second.json["created"]) == (200, [4], False)


@pytest.mark.parametrize("durability", ["disk", "memory", "ephemeral"])
def test_classes_that_do_not_wait_show_no_time_of_a_sync(
    http: RawHttp, topic: str, durability: str
) -> None:
    http.put(topic, durability=durability)
    for _ in range(300):  # beyond the ceiling that is reserved by a sync
        http.write(topic, 1)
    answer = http.write(topic, 1)
    assert answer.json["performance"]["fsync_ms"] == 0
    assert http.diff(topic, 300).json["records"][0]["$seq"] == 301


def test_seqs_are_left_out_when_nobody_wants_them(http: RawHttp, topic: str) -> None:
    body = {"records": [{"data": 1}]}
    assert "seqs" in http.ask("POST", f"/v0/topics/{topic}?return_seqs=true", body).json
    assert "seqs" not in http.ask("POST", f"/v0/topics/{topic}?return_seqs=false", body).json
    assert http.ask("POST", f"/v0/topics/{topic}?return_seqs=maybe", body).code == "invalid_request"
    assert http.diff(topic).json["head_seq"] == 2, "a refused write wrote something"


def test_a_repeated_key_gives_the_first_answer_and_writes_nothing(
    http: RawHttp, topic: str
) -> None:
    first = http.write(topic, 1, 2, idempotency_key="k")
    again = http.write(topic, "other", idempotency_key="k")
    assert (first.status, again.status) == (201, 200)
    assert again.json["deduped"] is True
    assert again.json["seqs"] == first.json["seqs"] == [1, 2]
    assert len(http.diff(topic).json["records"]) == 2


def test_a_key_can_come_in_the_header_and_the_body_wins(http: RawHttp, topic: str) -> None:
    path, body = f"/v0/topics/{topic}", {"records": [{"data": 1}]}

    def write(header: str, **fields: str) -> bool:
        answer = http.ask("POST", path, {**body, **fields}, {"Idempotency-Key": header})
        deduped: bool = answer.json["deduped"]
        return deduped

    assert not write("h")
    assert write("h")
    assert not write("h", idempotency_key="b")
    assert write("other", idempotency_key="b")
    assert write("x", idempotency_key="h"), "header and body name the same keys"


def test_a_key_of_other_letters_is_the_same_in_header_and_body(http: RawHttp, topic: str) -> None:
    raw = http.request("POST", f"/v0/topics/{topic}", {"records": [{"data": 1}]}, {"X": "x"})
    http.send(raw.replace(b"X: x", "Idempotency-Key: clé".encode()))
    assert not http.answer().json["deduped"]
    assert http.write(topic, 1, idempotency_key="clé").json["deduped"]


def test_a_head_that_is_not_where_it_was_expected_is_a_conflict(http: RawHttp, topic: str) -> None:
    assert http.write(topic, 1, expect_head_seq=0).status == 201
    assert http.write(topic, 2, expect_head_seq=1).status == 200
    refused = http.write(topic, 3, expect_head_seq=1)
    assert (refused.status, refused.code) == (409, "head_conflict")
    assert http.diff(topic).json["head_seq"] == 2


def test_creating_on_write_follows_auto_create_and_create(http: RawHttp, topic: str) -> None:
    assert http.write(topic, 1, create=False).code == "topic_not_found"
    assert http.write(topic, 1, config={"auto_create": False}).code == "topic_not_found"
    assert http.get(f"/v0/topics/{topic}").status == 404
    made = http.write(topic, 1, config={"auto_create": False, "cap_records": 5}, create=True)
    assert made.status == 201
    assert http.get(f"/v0/topics/{topic}").json["config"]["cap_records"] == 5
    assert http.write(topic, 2, config={"cap_records": 9}).status == 200
    assert http.get(f"/v0/topics/{topic}").json["config"]["cap_records"] == 5


def test_a_full_topic_that_rejects_takes_no_seq(http: RawHttp, topic: str) -> None:
    http.put(topic, cap_records=2, discard="reject")
    assert http.write(topic, 1, 2).status == 200
    refused = http.write(topic, 3)
    assert (refused.status, refused.code) == (422, "topic_full")
    assert http.get(f"/v0/topics/{topic}").json["next_seq"] == 3


# -- limits


def refused(http: RawHttp, topic: str, record: dict[str, object], **fields: object) -> str:
    answer = http.write_records(topic, record, **fields)
    assert answer.status == (413 if answer.code == "record_too_large" else 400), answer
    assert http.get(f"/v0/topics/{topic}").status == 404, "a refused write made the topic"
    return answer.code


def test_each_part_of_a_record_has_its_limit(http: RawHttp, topic: str) -> None:
    fits = {
        "data": "x" * (limits.RECORD_BYTES_MAX - 2),
        "tag": "t" * limits.TAG_BYTES_MAX,
        "node": "é" * (limits.NODE_BYTES_MAX // 2),
    }
    over = "x" * (limits.RECORD_BYTES_MAX - 1)
    assert refused(http, topic, {"data": over}) == "record_too_large"
    assert refused(http, topic, {"data": 1, "tag": fits["tag"] + "t"}) == "invalid_request"
    assert refused(http, topic, {"data": 1, "node": fits["node"] + "n"}) == "invalid_request"
    assert refused(http, topic, {"data": 1}, node="n" * 129) == "invalid_request"
    assert refused(http, topic, {"data": 1, "meta": [1]}) == "invalid_request"
    large_meta = {"m": "x" * limits.META_BYTES_MAX}
    assert refused(http, topic, {"data": 1, "meta": large_meta}) == "record_too_large"
    many = {str(n): n for n in range(limits.META_KEYS_MAX + 1)}
    assert refused(http, topic, {"data": 1, "meta": many}) == "invalid_request"
    assert refused(http, topic, {"data": 1}, idempotency_key="k" * 257) == "invalid_request"
    assert refused(http, topic, {"data": 1}, idempotency_key="") == "invalid_request"
    del many["0"]
    assert http.write_records(topic, fits, {"data": 1, "meta": many}).status == 201


def test_a_write_takes_ten_thousand_records_and_not_one_more(http: RawHttp, topic: str) -> None:
    path = f"/v0/topics/{topic}"
    one = b'{"data":1}'
    over = http.ask("POST", path, b'{"records":[' + b",".join([one] * 10_001) + b"]}")
    assert (over.status, over.code) == (400, "batch_too_large")
    assert http.get(path).status == 404
    most = http.ask("POST", path, b'{"records":[' + b",".join([one] * 10_000) + b"]}")
    assert (most.json["count"], most.json["last_seq"]) == (10_000, 10_000)
    assert http.ask("POST", path, b'{"records":[]}').code == "invalid_request"


def test_one_bad_record_refuses_the_whole_write(http: RawHttp, topic: str) -> None:
    answer = http.write_records(topic, {"data": 1}, {"data": 2, "tag": "t" * 300}, {"data": 3})
    assert answer.status == 400
    assert http.get(f"/v0/topics/{topic}").status == 404


BAD_BODIES = [
    b"", b"{}", b"[]", b"null", b"{", b'{"records":1}', b'{"records":[{}]}', b'{"records":[1]}',
    b'{"records":[{"data":NaN}]}', b'{"records":[{"data":Infinity}]}',
    b'{"records":[{"data":1,"extra":1}]}', b'{"records":[{"data":1}],"extra":1}',
    b'{"records":[{"data":01}]}', b'{"records":[{"data":"\xff\xfe"}]}', b"\xef\xbb\xbf{}",
    b'{"records":[{"data":"\n"}]}', b'{"records":[{"data":1}],"create":"yes"}',
    b'{"records":[{"data":1,"tag":"\\ud800"}]}', b'{"records":[{"data":1,"tag":7}]}',
    b'{"records":[{"data":1}],"expect_head_seq":-1}',
    b'{"records":[{"data":1}],"config":{"nonsense":1}}',
    b'{"records":[{"data":1}]}{"records":[{"data":2}]}',
    b'{"records":[{"data":' + b"[" * 200_000 + b"]" * 200_000 + b"}]}",
    b'{"records":[{"data":1,"meta":' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}]}",
]  # fmt: skip


@pytest.mark.parametrize("body", BAD_BODIES, ids=range(len(BAD_BODIES)))
def test_a_body_that_is_not_a_write_is_refused_and_the_connection_lives(
    http: RawHttp, topic: str, body: bytes
) -> None:
    answer = http.ask("POST", f"/v0/topics/{topic}", body)
    assert (answer.status, answer.code) == (400, "invalid_request")
    assert len(answer.body) < 1_000
    assert http.get(f"/v0/topics/{topic}").status == 404


def test_duplicate_keys_beside_the_payload_do_not_hide_records(http: RawHttp, topic: str) -> None:
    body = b'{"records":[{"data":1}],"records":[{"data":2,"data":3}]}'
    answer = http.ask("POST", f"/v0/topics/{topic}", body)
    assert answer.json["count"] == 1
    assert [r["data"] for r in http.diff(topic).json["records"]] == [3]


def test_only_json_is_taken_and_a_missing_type_is_forgiven(http: RawHttp, topic: str) -> None:
    path, body = f"/v0/topics/{topic}", json.dumps({"records": [{"data": 1}]})
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/jsonx"):
        answer = http.ask("POST", path, body, {"content-type": kind})
        assert (answer.status, answer.code) == (415, "unsupported_media_type")
    for kind in ("application/json; charset=utf-8", "Application/JSON"):
        assert http.ask("POST", path, body, {"content-type": kind}).status < 300
    bare = http.request("POST", path, body).replace(b"content-type: application/json\r\n", b"")
    http.send(bare)
    assert http.answer().status == 200
