// All topics, a page at a time, with how they move.

import { get } from "./api.js";
import { badge, field, head, make, refill } from "./element.js";
import { about, ago, count, rate, size, span } from "./format.js";
import { listTopics } from "./listing.js";
import { Rates, debounced, repeat } from "./live.js";
import { link, remember } from "./navigation.js";
import { Pager, Table } from "./table.js";

const ROUTERS_MAX = 1_000;

export function openTopics({ container, query, signal, problem }) {
    const contains = make("input", {
        type: "search",
        "data-key": "/",
        value: query.get("contains") ?? "",
        placeholder: "part of a name",
    });
    const type = make(
        "select",
        {},
        [
            ["", "all"],
            ["log", "logs"],
            ["queue", "queues"],
        ].map(([value, text]) =>
            make("option", { value, selected: value === query.get("type") }, text),
        ),
    );
    const table = topicsTable();
    const rates = new Rates();
    const refresh = async () => {
        const options = { contains: contains.value.trim(), type: type.value, cursor: pager.cursor };
        const turn = (turns += 1);
        const [page, lags] = await Promise.all([listTopics(options, signal), routerLags(signal)]);
        if (turn !== turns) return; // another search has begun meanwhile
        for (const topic of page.topics) {
            topic.rate = rates.observe(`${topic.topic} ${topic.epoch}`, topic.head_seq);
            topic.lag = lags.get(topic.topic);
        }
        table.update(page.topics);
        pager.show(page.next, page.topics.length);
    };
    let turns = 0;
    const now = () =>
        refresh().then(
            () => problem(null),
            (error) => signal.aborted || problem(error),
        );
    const pager = new Pager(now);
    const search = debounced(() => {
        pager.restart();
        remember(["topics"], { contains: contains.value.trim(), type: type.value });
        now();
    });
    contains.addEventListener("input", search);
    type.addEventListener("change", search);
    refill(
        container,
        head("Topics", ""),
        make(
            "div",
            { class: "controls" },
            make("div", { class: "grow" }, field("Search", contains)),
            field("Type", type),
        ),
        table.element,
        pager.element,
    );
    repeat(2_000, signal, refresh, problem);
}

/** How far the slowest router of each topic is behind. */
async function routerLags(signal) {
    const { routers } = await get(`/v0/routers?page_size=${ROUTERS_MAX}`, { signal });
    const lags = new Map();
    for (const router of routers)
        lags.set(router.source, Math.max(lags.get(router.source) ?? 0, router.lag));
    return lags;
}

function topicsTable() {
    return new Table(
        [
            {
                title: "Topic",
                kind: "name",
                once: true,
                cell: (row) => link(row.topic, "topic", row.topic),
            },
            { title: "Type", cell: (row) => badge(row.type, row.type === "queue" ? "water" : "") },
            { title: "Written", kind: "number", cell: (row) => rate(row.rate ?? 0) },
            { title: "Records", kind: "number", cell: (row) => about(row.count) },
            { title: "Size", kind: "number", cell: (row) => size(row.bytes) },
            { title: "Head", kind: "number", cell: (row) => count(row.head_seq) },
            { title: "Floor", kind: "number", cell: (row) => count(row.earliest_seq) },
            { title: "Router lag", kind: "number", cell: lag },
            { title: "Durability", cell: (row) => durability(row.config) },
            { title: "Retained", cell: (row) => retention(row.config) },
            {
                title: "Last write",
                kind: "number",
                cell: lastWrite,
            },
        ],
        (row) => `${row.topic} ${row.epoch}`,
        "No topic has such a name.",
    );
}

/** Of a queue, what waits for workers; of a log, what its slowest router has not copied. */
function lag(row) {
    if (row.queue) return `${about(row.queue.ready)} ready`;
    return row.lag === undefined ? "none" : about(row.lag);
}

/** What an acknowledged write of this topic survives. */
export function durability(config) {
    const kinds = { fsync: "good", disk: "" };
    // A partition of Kafka: each producer chooses, by acks.
    if (!config.durability) return badge("by acks");
    return badge(config.durability, kinds[config.durability] ?? "warn");
}

export function retention(config) {
    const limits = [
        config.ttl_ms ? span(config.ttl_ms) : null,
        config.cap_records ? `${about(config.cap_records)} records` : null,
        config.cap_bytes ? size(config.cap_bytes) : null,
        // Of a topic of Kafka, where less than nothing means no limit.
        config["retention.ms"] >= 0 ? span(Number(config["retention.ms"])) : null,
        config["retention.bytes"] >= 0 ? size(Number(config["retention.bytes"])) : null,
    ].filter(Boolean);
    return limits.length ? limits.join(", ") : "for ever";
}

/** A Kafka partition does not keep it: then it is unknown, unless there never was one. */
export function lastWrite(topic) {
    if (topic.last_write_ts) return ago(topic.last_write_ts);
    return topic.head_seq ? "unknown" : "never";
}
