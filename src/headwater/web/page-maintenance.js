// The last reports of `headwater verify`, `headwater doctor` and the pipeline's jobs.

import { get } from "./api.js";
import { badge, facts, head, make, refill } from "./element.js";
import { ago, clock, count } from "./format.js";
import { repeat } from "./live.js";

const ROWS_MAX = 200;
const PARTS_MAX = 12;
const A_TIME = /(^|_)ts$/;
const YEAR_2001_MS = 1e12;

const COMMANDS = [
    ["headwater verify DIR", "reads everything and says whether it is sound"],
    ["headwater doctor DIR", "measures the disk and checks what a log needs"],
    [
        "headwater pipeline verify --path DIR",
        "the same as verify, with Spark; lake, stats, compact and others report here, too",
    ],
];

export function openMaintenance({ container, signal, problem }) {
    const shown = make("div");
    refill(
        container,
        head(
            "Maintenance",
            "verify, doctor and the Spark pipeline: their last runs on this data directory",
        ),
        shown,
    );
    let before = "";
    repeat(
        5_000,
        signal,
        async () => {
            const { runs, unreadable } = await get("/v0/jobs", { signal });
            const now = JSON.stringify([runs, unreadable]);
            if (now === before) return;
            before = now;
            refill(
                shown,
                unreadable.length
                    ? make(
                          "p",
                          { class: "notice soft" },
                          `Cannot be read: ${unreadable.join(", ")}`,
                      )
                    : null,
                runs.length ? runs.map(runCard) : nothingYet(),
            );
        },
        problem,
    );
}

function nothingYet() {
    return make(
        "div",
        { class: "notice soft" },
        make("p", {}, "No report yet. Each of these commands leaves one here:"),
        make(
            "ul",
            {},
            COMMANDS.map(([command, what]) =>
                make("li", {}, make("code", {}, command), ` ${what}`),
            ),
        ),
    );
}

function runCard(run) {
    const { plain, lists } = partsOf(run.report);
    return make(
        "section",
        { class: "section" },
        make(
            "header",
            {},
            make("h2", {}, run.job.replace("pipeline-", "pipeline ")),
            badge(run.ok ? "no problems" : "problems", run.ok ? "good" : "bad"),
            make("span", { class: "quiet", title: clock(run.at_ms) }, ago(run.at_ms)),
        ),
        facts(plain),
        lists.map(([name, rows]) => listOf(name, rows)),
    );
}

/** Single values, and lists of rows. What is inside another object has the names of both. */
function partsOf(report, before = "") {
    const plain = [];
    const lists = [];
    for (const [name, value] of Object.entries(report)) {
        const whole = `${before}${spoken(name)}`;
        if (hasParts(value)) {
            const inside = partsOf(value, `${whole} `);
            plain.push(...inside.plain);
            lists.push(...inside.lists);
        } else if (Array.isArray(value) && value.length && value.every(isRow))
            lists.push([whole, value]);
        else if (name !== "ok" && !(before && Array.isArray(value) && !value.length))
            plain.push([whole, shownValue(value)]);
    }
    return { plain, lists };
}

function isRow(value) {
    return value !== null && typeof value === "object" && !Array.isArray(value);
}

/** An object of a few fields, which read better one by one. */
function hasParts(value) {
    return isRow(value) && Object.keys(value).length <= PARTS_MAX;
}

function spoken(name) {
    return name.replaceAll("_", " ");
}

function isNothing(value) {
    return value === undefined || value === null || value.length === 0;
}

function shownValue(value, name = "") {
    if (typeof value === "number" && A_TIME.test(name) && value > YEAR_2001_MS) return clock(value);
    if (typeof value === "number") return Number.isInteger(value) ? count(value) : value.toFixed(2);
    if (typeof value === "boolean") return value ? "yes" : "no";
    if (isNothing(value)) return "none";
    return typeof value === "object" ? make("code", {}, JSON.stringify(value)) : String(value);
}

/** The row with a cell for each field of the objects in it. */
function flattened(row) {
    const cells = Object.create(null);
    for (const [name, value] of Object.entries(row))
        if (hasParts(value))
            for (const [inner, each] of Object.entries(value)) cells[`${name} ${inner}`] = each;
        else cells[name] = value;
    return cells;
}

function listOf(name, rows) {
    const flat = rows.slice(0, ROWS_MAX).map(flattened);
    const columns = [...new Set(flat.flatMap((row) => Object.keys(row)))];
    const body = flat.map((row) =>
        make(
            "tr",
            {},
            columns.map((column) =>
                make(
                    "td",
                    { class: "wrap" },
                    isNothing(row[column]) ? "" : shownValue(row[column], column),
                ),
            ),
        ),
    );
    const more =
        rows.length > ROWS_MAX
            ? make("p", { class: "quiet" }, `and ${count(rows.length - ROWS_MAX)} more`)
            : null;
    return make(
        "details",
        { class: "fold", open: rows.length <= 12 },
        make("summary", {}, `${name} (${count(rows.length)})`),
        make(
            "div",
            { class: "scroll" },
            make(
                "table",
                {},
                make(
                    "thead",
                    {},
                    make(
                        "tr",
                        {},
                        columns.map((column) => make("th", { scope: "col" }, spoken(column))),
                    ),
                ),
                make("tbody", {}, body),
            ),
        ),
        more,
    );
}
