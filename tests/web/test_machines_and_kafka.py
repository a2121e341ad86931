"""Machines with drawings and histories, Kafka's topics and groups, as the dashboard has them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from playwright.sync_api import expect

from tests.kafka.broker import Broker
from tests.server.raw_http import RawHttp
from tests.web.dashboard_page import Dashboard

pytestmark = pytest.mark.e2e

HOSTILE = "<script>window.pwned = 1</script>"
DEFINITION: dict[str, Any] = {
    "states": ["open", "paid", HOSTILE],
    "initial": "open",
    "transitions": [
        {"from": "open", "event": "pay", "to": "paid"},
        {"from": "paid", "event": "spoil", "to": HOSTILE},
    ],
}


def made(http: RawHttp, machine: str, count: int) -> list[str]:
    answer = http.ask("PUT", f"/v0/machines/{machine}/versions/1", {"definition": DEFINITION})
    assert answer.status == 201, answer.body
    names = [f"{machine}-{number}" for number in range(count)]
    for name in names:
        body = {"machine": machine, "version": 1, "instance_id": name, "initial_ctx": {"n": 1}}
        assert http.ask("POST", "/v0/instances", body).status == 201
    return names


def happen(http: RawHttp, instance: str, event: str) -> None:
    body = {"event": event, "payload": {"by": HOSTILE}}
    assert http.ask("POST", f"/v0/instances/{instance}/events", body).status == 200


def test_a_machine_is_drawn_with_counts_that_move(dashboard: Dashboard, http: RawHttp) -> None:
    names = made(http, "order", 3)
    dashboard.open("machines")
    dashboard.row("order").get_by_role("link").click()
    drawing = dashboard.page.locator("img.drawing")
    expect(drawing).to_have_attribute("src", re.compile("^blob:"))
    assert drawing.evaluate("image => image.decode().then(() => image.naturalWidth > 50)")
    paid = dashboard.page.get_by_text("paid", exact=True)
    count = dashboard.page.locator(".card").filter(has=paid)
    expect(count.locator("strong")).to_have_text("0")
    expect(dashboard.row("order-")).to_have_count(3)
    happen(http, names[1], "pay")
    expect(count.locator("strong")).to_have_text("1")
    dashboard.page.get_by_label("State").last.select_option("paid")
    expect(dashboard.row("order-")).to_have_count(1)
    assert dashboard.page.evaluate("window.pwned") is None


def test_an_instance_shows_how_it_came_where_it_is(dashboard: Dashboard, http: RawHttp) -> None:
    (name,) = made(http, "parcel", 1)
    happen(http, name, "pay")
    dashboard.open(f"instance/{name}")
    expect(dashboard.page.locator(".facts")).to_contain_text("paid")
    rows = dashboard.rows()
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text(HOSTILE)
    happen(http, name, "spoil")
    expect(rows).to_have_count(3)
    expect(dashboard.page.locator(".facts")).to_contain_text(HOSTILE)
    assert dashboard.page.locator("main script").count() == 0
    assert dashboard.page.evaluate("window.pwned") is None


def test_kafka_topics_and_lag_of_groups_are_shown(dashboard: Dashboard, server: Broker) -> None:
    broker = {"bootstrap.servers": f"127.0.0.1:{server.kafka_port}"}
    producer = Producer(broker)
    for number in range(5):
        producer.produce("payments", value=f'{{"n": {number}}}', key="k")
    assert producer.flush(20) == 0
    consumer = Consumer({**broker, "group.id": "bookkeeping", "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition("payments", 0, 2)], asynchronous=False)
    consumer.close()
    dashboard.open("kafka")
    row = dashboard.row("payments")
    expect(row.locator("td").nth(6)).to_have_text("5")
    group = dashboard.row("bookkeeping")
    expect(group.locator("td").nth(4)).to_have_text("2")
    expect(group.locator("td").nth(5)).to_have_text("3")
    producer.produce("payments", value="6")
    assert producer.flush(20) == 0
    expect(group.locator("td").nth(5)).to_have_text("4")
    row.get_by_role("link").click()
    expect(dashboard.page.locator(".records tbody tr[data-seq]")).to_have_count(6)
    badges = dashboard.page.locator(".head .badge")
    expect(badges).to_have_text(["log", "by acks"])
    about = dashboard.page.locator(".facts").first
    expect(about).to_contain_text("Retainedfor ever")
    expect(about).to_contain_text("Last writeunknown")


def test_a_partition_of_kafka_is_kept_as_long_as_its_topic_says(
    dashboard: Dashboard, server: Broker
) -> None:
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{server.kafka_port}"})
    limits = {"retention.ms": "3600000", "retention.bytes": "-1"}
    admin.create_topics([NewTopic("brief", 1, 1, config=limits)])["brief"].result(20)
    dashboard.open("topic/kafka:brief:0")
    about = dashboard.page.locator(".facts").first
    expect(about).to_contain_text("Retained1 h")
    expect(about).to_contain_text("Last writenever")
