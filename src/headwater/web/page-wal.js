// The write-ahead log: its shards, how long syncs take, the pressure on the server.

import { histogram, meter, tile } from "./chart.js";
import { badge, head, make, refill, section } from "./element.js";
import { about, count, milliseconds, percent, rate, several, size, span } from "./format.js";
import { eachStatus, history, lately } from "./status.js";

const SIGNALS = {
    ready: "topics that wait for their turn",
    latency: "how long turns wait",
    pool: "readers at work",
    backlog: "writes that wait for the log",
    stall: "age of the oldest write under way",
};

export function openWal({ container, signal, problem }) {
    const tiles = make("div", { class: "tiles three" });
    const shards = make("div");
    const pressure = make("div", { class: "card signals" });
    const ladder = make("ol", { class: "ladder" });
    const holds = make("div");
    refill(
        container,
        head("Write-ahead log", "acknowledged writes are here first"),
        tiles,
        make(
            "div",
            { class: "columns" },
            make(
                "div",
                {},
                section("Shards", "time of fdatasync since the start", shards),
                section("Retention holds", "consumers that still need old log", holds),
            ),
            make(
                "div",
                {},
                section("Pressure", "each signal, 0 to 100 %", pressure),
                section("Ladder", "what the server does about it, the mildest below", ladder),
            ),
        ),
    );
    eachStatus(
        signal,
        (status) => {
            refill(tiles, tilesOf(status));
            refill(shards, status.shards.map(shardCard));
            refill(holds, holdsOf(status));
            refill(pressure, signalsOf(status.pressure));
            refill(ladder, status.pressure.rungs.map(rungOf));
        },
        problem,
    );
}

function tilesOf(status) {
    const now = history.at(-1)?.speed ?? { bytes: 0, syncs: 0, written: 0 };
    const queued = status.shards.reduce((sum, shard) => sum + shard.queue_depth, 0);
    return [
        tile("Written", `${size(now.bytes)}/s`, { values: lately((sample) => sample.speed.bytes) }),
        tile("Syncs", rate(now.syncs), { values: lately((sample) => sample.speed.syncs) }),
        tile("Records a sync", now.syncs ? about(now.written / now.syncs) : "0", {
            more: "waiting writes share one",
        }),
        tile("Waiting for the log", count(queued), {
            more: `${size(status.tail_bytes)} not in segments yet`,
        }),
        tile("Pressure", percent(status.pressure.pressure), {
            values: lately((sample) => sample.status.pressure.pressure),
        }),
        tile("Refused", count(status.pressure.writes_refused), {
            more: "writes, with 429",
            state: status.pressure.writes_refused ? "warn" : null,
        }),
    ];
}

function shardName({ log, shard }) {
    const others = { machines: "Machines", kafka: "Kafka" };
    return others[log] ?? `Shard ${shard}`;
}

function shardCard(shard) {
    const { fsync } = shard;
    const state =
        shard.state === "writable" ? badge("writable", "good") : badge(shard.state, "bad");
    return make(
        "div",
        { class: "card" },
        make("header", {}, make("strong", {}, shardName(shard)), state),
        fsync.count
            ? syncTimes(shard)
            : make("div", { class: "quiet" }, "Nothing was synced since the start."),
        make(
            "div",
            { class: "quiet" },
            [
                several(fsync.count, "sync", about),
                several(shard.groups, "group", about),
                size(shard.bytes_written),
                several(shard.rotations, "new file"),
                `${count(shard.queue_depth)} waiting (most ${count(shard.queue_depth_peak)})`,
            ].join(", "),
        ),
    );
}

function syncTimes({ fsync, fsync_buckets }) {
    return [
        make(
            "div",
            { class: "quiet" },
            ["p50", "p90", "p99", "last"]
                .map((name) => `${name} ${milliseconds(fsync[`${name}_ms`])}`)
                .join(", "),
        ),
        histogram(fsync_buckets, (bucket) =>
            bucket.upto_ms === null ? "longer" : `up to ${bucket.upto_ms} ms`,
        ),
        make(
            "div",
            { class: "axis" },
            make("span", {}, "0.05 ms"),
            make("span", {}, "1 ms"),
            make("span", {}, "1 s and more"),
        ),
    ];
}

const HOLDERS = {
    transitions_topic: "the topic of transitions",
    webhook: "a webhook",
    watch: "a watch",
};

function holdsOf({ retention_holds, gaps }) {
    const cards = [...retention_holds.map(holdCard), ...gaps.map(gapCard)];
    return cards.length ? cards : [make("div", { class: "quiet" }, "No consumer needs old log.")];
}

function holdCard(hold) {
    const state = hold.gives_way
        ? badge("too far behind", "bad")
        : badge(hold.held_bytes ? "holds" : "up to date", hold.held_bytes ? "warn" : "good");
    const behind = hold.behind_bytes === null ? "not known yet" : `${size(hold.behind_bytes)} behind`;
    return make(
        "div",
        { class: "card" },
        make("header", {}, make("strong", {}, hold.name), state),
        make(
            "div",
            { class: "quiet" },
            [
                HOLDERS[hold.owner] ?? hold.owner,
                behind,
                `${size(hold.held_bytes)} retained for it`,
                `moved ${span(hold.still_ms)} ago`,
            ].join(", "),
        ),
    );
}

function gapCard(gap) {
    return make(
        "div",
        { class: "card" },
        make("header", {}, make("strong", {}, gap.name), badge(several(gap.gaps, "gap"), "bad")),
        make(
            "div",
            { class: "quiet" },
            `last: offsets ${gap.first_offset} to ${gap.last_offset}, ${gap.reason}`,
        ),
    );
}

function signalsOf(pressure) {
    return Object.entries(pressure.signals).map(([name, share]) => [
        make("span", {}, SIGNALS[name] ?? name),
        meter(share, { label: SIGNALS[name] ?? name }),
        make("strong", { class: "number" }, percent(share)),
    ]);
}

function rungOf(rung) {
    return make(
        "li",
        { "data-on": String(rung.in_force) },
        make("strong", {}, rung.rung),
        make("span", {}, rung.meaning),
        make(
            "span",
            { class: "quiet" },
            rung.in_force ? badge("in force", "warn") : several(rung.entered, "time"),
        ),
    );
}
