// Kafka's topics and consumer groups, and how far the groups are behind.

import { get } from "./api.js";
import { badge, head, make, refill, section } from "./element.js";
import { about, count, rate, size } from "./format.js";
import { Rates, repeat } from "./live.js";
import { link } from "./navigation.js";
import { Pager, Table } from "./table.js";

const PAGE_SIZE = 100;

export function openKafka({ container, signal, problem }) {
    const topics = topicsTable();
    const groups = groupsTable();
    const missing = make(
        "p",
        { class: "notice soft", hidden: true },
        "This server does not speak the Kafka protocol; --kafka-port says where it should.",
    );
    const rates = new Rates();
    const refresh = async () => {
        const [listed, known] = await Promise.all([
            ifThere("/v0/kafka/topics", topicPages.cursor, signal),
            ifThere("/v0/kafka/groups", groupPages.cursor, signal),
        ]);
        missing.hidden = listed !== null;
        const partitions = (listed?.topics ?? []).flatMap(partitionsOf);
        for (const row of partitions) row.rate = rates.observe(row.key, row.high);
        topics.update(partitions);
        topicPages.show(listed?.next_cursor, partitions.length);
        const rows = (known?.groups ?? []).flatMap(groupRows);
        groups.update(rows);
        groupPages.show(known?.next_cursor, rows.length);
    };
    const now = () => refresh().catch((error) => signal.aborted || problem(error));
    const topicPages = new Pager(now);
    const groupPages = new Pager(now);
    refill(
        container,
        head("Kafka", "topics of Kafka clients, who also see log topics, and the groups that read"),
        missing,
        section("Topics", "", topics.element, topicPages.element),
        section("Groups", "", groups.element, groupPages.element),
    );
    repeat(2_000, signal, refresh, problem);
}

async function ifThere(path, cursor, signal) {
    const options = new URLSearchParams({ page_size: PAGE_SIZE, ...(cursor ? { cursor } : {}) });
    try {
        return await get(`${path}?${options}`, { signal });
    } catch (error) {
        if (error.status === 404) return null;
        throw error;
    }
}

function partitionsOf({ topic, partitions }) {
    return partitions.map((partition) => ({
        key: `${topic} ${partition.partition}`,
        topic,
        partition: partition.partition,
        start: partition.start_offset,
        high: partition.high_watermark,
        bytes: partition.bytes,
    }));
}

function topicsTable() {
    return new Table(
        [
            {
                title: "Topic",
                kind: "name",
                once: true,
                cell: (row) => link(row.topic, "topic", `kafka:${row.topic}:${row.partition}`),
            },
            { title: "Partition", kind: "number", cell: (row) => count(row.partition) },
            { title: "Written", kind: "number", cell: (row) => rate(row.rate ?? 0) },
            { title: "Records", kind: "number", cell: (row) => about(row.high - row.start) },
            { title: "Size", kind: "number", cell: (row) => size(row.bytes) },
            { title: "Start", kind: "number", cell: (row) => count(row.start) },
            { title: "High watermark", kind: "number", cell: (row) => count(row.high) },
        ],
        (row) => row.key,
        "There are no Kafka topics.",
    );
}

/** A row for each partition a group has committed, or one for a group that has none. */
function groupRows({ group, state, members, lag, offsets }) {
    const shared = { group, state, members };
    if (!offsets.length) return [{ ...shared, key: group, topic: "", lag }];
    return offsets.map((each) => ({
        ...shared,
        key: `${group} ${each.topic} ${each.partition}`,
        topic: `${each.topic} ${each.partition}`,
        committed: each.offset,
        lag: each.lag,
    }));
}

function groupsTable() {
    return new Table(
        [
            { title: "Group", kind: "name", cell: (row) => make("span", {}, row.group) },
            {
                title: "State",
                cell: (row) => badge(row.state, row.state === "Stable" ? "good" : ""),
            },
            { title: "Members", kind: "number", cell: (row) => count(row.members) },
            { title: "Topic, partition", kind: "name", cell: (row) => row.topic },
            {
                title: "Committed",
                kind: "number",
                cell: (row) => (row.committed === undefined ? "none" : count(row.committed)),
            },
            { title: "Lag", kind: "number", cell: (row) => about(row.lag) },
        ],
        (row) => row.key,
        "No group has read anything.",
    );
}
