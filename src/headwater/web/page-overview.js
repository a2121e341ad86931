// The overview: is the server healthy, how much is going on, what needs attention.

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
const LISTED_MAX = 200;

export function openOverview({ container, signal, problem, reporter }) {
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
        "There are no topics yet. The first write creates one.",
    );
    refill(
        container,
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
            section("Needs attention", "", attention),
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
            const { topics } = await get(`/v0/topics?page_size=${LISTED_MAX}`, { signal });
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
    // Reports need an admin key; with another key only they are missing.
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
            values: lately((sample) => sample.speed.written),
        }),
        tile("Records read", rate(now.read), { values: lately((sample) => sample.speed.read) }),
        tile("Write-ahead log", `${size(now.bytes)}/s`, {
            values: lately((sample) => sample.speed.bytes),
        }),
        tile("Syncs", rate(now.syncs), {
            more: `p99 ${milliseconds(slowest)}`,
            values: lately((sample) => sample.speed.syncs),
        }),
        tile("Pressure", percent(pressure.pressure), {
            values: lately((sample) => sample.status.pressure.pressure),
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
function locationOf(damage) {
    const [first] = damage.places;
    if (!first) return "";
    const more = damage.places.length + damage.more - 1;
    const others = more ? ` and ${several(more, "other location")}` : "";
    return ` ${first.topic}: seq ${count(first.first_seq)}${inFile(first)}${others}.`;
}

function inFile({ file, offset }) {
    return `${file ? ` in ${file}` : ""}${offset === null ? "" : ` at byte ${offset}`}`;
}

/** What an operator needs to know first, each with a link to the page that shows more. */
function concerns(status, runs) {
    const { pressure, totals, damage } = status;
    const items = [
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
            `Not served: ${each.part}. ${each.what}${inFile(each)}. ` +
                "Stop the server and run headwater repair.",
            ["log"],
        ]),
        status.mended.length && [
            "warn",
            "The last start repaired or worked around damage: " +
                `${status.mended.map((each) => `${each.what} in ${each.path}`).join("; ")}.`,
            ["log"],
        ],
        damage.records && [
            "bad",
            `${count(damage.records)} damaged records are not served.${locationOf(damage)} ` +
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
            `${count(totals.jobs_blocked)} jobs are blocked: their dead letter topic refuses them.`,
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
    if (!items.length) return [make("li", { class: "good" }, "Nothing: the server is healthy.")];
    return items.map(([kind, text, path]) =>
        make("li", { class: kind }, text, " ", make("a", { href: address(...path) }, "Show")),
    );
}
