// The overview: is all well, how much is going on, what wants a look.

import { get } from "./api.js";
import { tile } from "./chart.js";
import { make, refill, section } from "./element.js";
import { about, ago, count, milliseconds, percent, rate, several, size, span } from "./format.js";
import { Rates, repeat } from "./live.js";
import { address, link } from "./navigation.js";
import { lastWrite } from "./page-topics.js";
import { eachStatus, history, lately } from "./status.js";
import { Table } from "./table.js";

const BUSIEST = 12;
const LOOKED_AT = 200;

export function openOverview({ place, signal, problem, reporter }) {
    const tiles = make("div", { class: "tiles" });
    const attention = make("ul", { class: "attention" });
    const note = make("span", { class: "quiet" });
    const rates = new Rates();
    const table = new Table(
        [
            {
                title: "Topic",
                kind: "name",
                once: true,
                cell: (row) => link(row.topic, "topic", row.topic),
            },
            { title: "Written", kind: "number", cell: (row) => rate(row.rate ?? 0) },
            { title: "Records", kind: "number", cell: (row) => about(row.count) },
            { title: "Size", kind: "number", cell: (row) => size(row.bytes) },
            {
                title: "Last write",
                kind: "number",
                cell: lastWrite,
            },
        ],
        (row) => row.topic,
        "There are no topics yet. The first write makes one.",
    );
    refill(
        place,
        make(
            "div",
            { class: "head" },
            make("h1", {}, "Overview"),
            note,
            make("a", { href: "/docs" }, "API"),
        ),
        tiles,
        make(
            "div",
            { class: "columns" },
            section("Busiest topics", "", table.element),
            section("What wants a look", "", attention),
        ),
    );
    let runs = [];
    eachStatus(
        signal,
        (status) => {
            const { version, python } = status;
            note.textContent = `Headwater ${version} on Python ${python}, up for ${span(status.uptime_ms)}`;
            refill(tiles, tilesOf(status));
            refill(attention, concerns(status, runs));
        },
        reporter("status"),
    );
    repeat(
        3_000,
        signal,
        async () => {
            const { topics } = await get(`/v0/topics?page_size=${LOOKED_AT}`, { signal });
            for (const topic of topics)
                topic.rate = rates.observe(`${topic.topic} ${topic.epoch}`, topic.head_seq);
            topics.sort(
                (one, other) =>
                    (other.rate ?? 0) - (one.rate ?? 0) ||
                    (other.last_write_ts ?? 0) - (one.last_write_ts ?? 0),
            );
            table.update(topics.slice(0, BUSIEST));
        },
        problem,
    );
    // Reports need a key that may do everything; whoever has another one misses only them.
    repeat(
        30_000,
        signal,
        async () => ({ runs } = await get("/v0/jobs", { signal })),
        () => {},
    );
}

function tilesOf(status) {
    const now = history.at(-1)?.speed ?? { written: 0, read: 0, bytes: 0, syncs: 0 };
    const slowest = Math.max(0, ...status.shards.map((shard) => shard.fsync.p99_ms));
    const { totals, pressure } = status;
    return [
        tile("Records written", rate(now.written), {
            values: lately((look) => look.speed.written),
        }),
        tile("Records read", rate(now.read), { values: lately((look) => look.speed.read) }),
        tile("Log", `${size(now.bytes)}/s`, { values: lately((look) => look.speed.bytes) }),
        tile("Syncs", rate(now.syncs), {
            more: `p99 ${milliseconds(slowest)}`,
            values: lately((look) => look.speed.syncs),
        }),
        tile("Pressure", percent(pressure.pressure), {
            values: lately((look) => look.status.pressure.pressure),
            state: pressure.pressure > 0.8 ? "bad" : pressure.pressure > 0.4 ? "warn" : null,
        }),
        tile("Topics", count(totals.topics), {
            more: `${about(totals.records)} records, ${size(totals.bytes)}`,
        }),
        tile("Jobs ready", about(totals.jobs_ready), {
            more: `${about(totals.jobs_in_flight)} in flight, ${about(totals.jobs_delayed)} delayed`,
        }),
        tile("Connections", count(status.connections), {
            more: `${several(status.sse_connections, "stream")}, ${several(totals.routers, "router")}`,
        }),
    ];
}

/** Where the first damage is, for those who may know. */
function placeOf(damage) {
    const [first] = damage.places;
    if (!first) return "";
    const more = damage.places.length + damage.more - 1;
    const others = more ? ` and ${several(more, "other place")}` : "";
    return ` ${first.topic}: seq ${count(first.first_seq)}${inFile(first)}${others}.`;
}

function inFile({ file, offset }) {
    return `${file ? ` in ${file}` : ""}${offset === null ? "" : ` at byte ${offset}`}`;
}

/** What an operator would want to know first, each with where to look. */
function concerns(status, runs) {
    const { pressure, totals, damage } = status;
    const found = [
        status.state === "poisoned" && [
            "bad",
            "A sync of the log failed: nothing more is acknowledged. Restart the server.",
            ["log"],
        ],
        status.state === "full" && [
            "bad",
            "The disk is full: reads go on, writes are refused.",
            ["log"],
        ],
        ...status.unavailable.map((each) => [
            "bad",
            [
            `Not served: ${each.part}. ${each.what}${inFile(each)}. ` +
                "Stop the server and run headwater repair.",
                each.file ? ` in ${each.file}` : "",
                each.offset === null ? "" : ` at byte ${each.offset}`,
                ". Stop the server and run headwater repair.",
            ].join(""),
            ["log"],
        ]),
        status.mended.length && [
            "warn",
            "The last start found damage that it goes on in spite of: " +
                `${status.mended.map((each) => `${each.what} in ${each.path}`).join("; ")}.`,
            ["log"],
        ],
        damage.records && [
            "bad",
            `${count(damage.records)} damaged records are not served.${placeOf(damage)} ` +
                "Run headwater verify.",
            ["jobs"],
        ],
        pressure.writes_refused && [
            "warn",
            `${count(pressure.writes_refused)} writes were refused because of pressure.`,
            ["log"],
        ],
        totals.jobs_blocked && [
            "bad",
            `${count(totals.jobs_blocked)} jobs cannot be put away: their dead letter topic refuses.`,
            ["queues"],
        ],
        totals.jobs_dead_lettered && [
            "warn",
            `${count(totals.jobs_dead_lettered)} jobs were given up as dead letters.`,
            ["queues"],
        ],
        ...runs
            .filter((run) => !run.ok)
            .map((run) => ["bad", `${run.job} found problems ${ago(run.at_ms)}.`, ["jobs"]]),
    ].filter(Boolean);
    if (!found.length) return [make("li", { class: "good" }, "Nothing. All is well.")];
    return found.map(([kind, text, path]) =>
        make("li", { class: kind }, text, " ", make("a", { href: address(...path) }, "Look")),
    );
}
