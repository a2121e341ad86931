// Kafka's topics and consumer groups, and how far the groups are behind.

import { get } from "./api.js";
import { badge, head, make, refill, section } from "./element.js";
import { about, count, rate, size } from "./format.js";
import { Rates, repeat } from "./live.js";
import { link } from "./navigation.js";
import { Table } from "./table.js";

export function openKafka({ place, signal, problem }) {
    const topics = topicsTable();
    const groups = groupsTable();
    const missing = make(
        "p",
        { class: "notice soft", hidden: true },
        "This server does not speak the Kafka protocol; --kafka-port says where it should.",
    );
    const rates = new Rates();
    refill(
        place,
        head("Kafka", "topics that Kafka clients see, and the groups that read them"),
        missing,
        section("Topics", "", topics.element),
        section("Groups", "", groups.element),
    );
    repeat(
        2_000,
        signal,
        async () => {
            const [listed, known] = await Promise.all(
                ["topics", "groups"].map((what) => ifThere(`/v0/kafka/${what}`, signal)),
            );
            missing.hidden = listed !== null || known !== null;
            const partitions = (listed?.topics ?? []).flatMap(partitionsOf);
            for (const row of partitions) row.rate = rates.observe(row.key, row.high);
            topics.update(partitions);
            groups.update((known?.groups ?? []).flatMap(groupRows));
        },
        problem,
    );
}

async function ifThere(path, signal) {
    try {
        return await get(path, { signal });
    } catch (error) {
        if (error.status === 404) return null;
        throw error;
    }
}

function partitionsOf(topic) {
    const name = topic.topic ?? topic.name;
    return topic.partitions.map((partition) => ({
        key: `${name} ${partition.partition}`,
        topic: name,
        partition: partition.partition,
        start: partition.start_offset ?? partition.log_start_offset ?? 0,
        high: partition.high_watermark ?? 0,
        bytes: partition.bytes ?? 0,
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
function groupRows(group) {
    const name = group.group ?? group.group_id;
    const shared = {
        group: name,
        state: group.state,
        members: Array.isArray(group.members) ? group.members.length : (group.members ?? 0),
    };
    const offsets = group.offsets ?? group.partitions ?? [];
    if (!offsets.length) return [{ ...shared, key: name, topic: "", lag: group.lag ?? 0 }];
    return offsets.map((each) => ({
        ...shared,
        key: `${name} ${each.topic} ${each.partition}`,
        topic: `${each.topic} ${each.partition}`,
        committed: each.offset ?? each.committed,
        lag: each.lag ?? 0,
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
