// What `headwater verify`, `headwater doctor` and the pipeline's jobs found last.

import { get } from "./api.js";
import { badge, facts, head, make, refill } from "./element.js";
import { ago, clock, count } from "./format.js";
import { repeat } from "./live.js";

const ROWS_MAX = 200;

const COMMANDS = [
    ["headwater verify DIR", "reads everything and says whether it is sound"],
    ["headwater doctor DIR", "measures the disk and checks what a log needs"],
    [
        "headwater pipeline verify --path DIR",
        "the same as verify, with Spark; lake, stats, compact and others report here, too",
    ],
];

export function openJobs({ place, signal, problem }) {
    const shown = make("div");
    refill(
        place,
        head(
            "Jobs",
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
        make("p", {}, "Nothing was run yet. Each of these leaves its result here:"),
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
    const plain = [];
    const lists = [];
    for (const [name, value] of Object.entries(run.report)) {
        if (
            Array.isArray(value) &&
            value.length &&
            value.every((each) => each && typeof each === "object")
        )
            lists.push([name, value]);
        else if (name !== "ok") plain.push([spoken(name), shownValue(value)]);
    }
    return make(
        "section",
        { class: "section" },
        make(
            "header",
            {},
            make("h2", {}, run.job.replace("pipeline-", "pipeline ")),
            badge(run.ok ? "all well" : "problems", run.ok ? "good" : "bad"),
            make("span", { class: "quiet", title: clock(run.at_ms) }, ago(run.at_ms)),
        ),
        facts(plain),
        lists.map(([name, rows]) => listOf(name, rows)),
    );
}

function spoken(name) {
    return name.replaceAll("_", " ");
}

function shownValue(value) {
    if (typeof value === "number") return Number.isInteger(value) ? count(value) : value.toFixed(2);
    if (value === null || value.length === 0) return "none";
    return typeof value === "object" ? make("code", {}, JSON.stringify(value)) : String(value);
}

function listOf(name, rows) {
    const columns = [...new Set(rows.flatMap((row) => Object.keys(row)))];
    const body = rows.slice(0, ROWS_MAX).map((row) =>
        make(
            "tr",
            {},
            columns.map((column) =>
                make(
                    "td",
                    { class: "wrap" },
                    row[column] === undefined || row[column] === null
                        ? ""
                        : shownValue(row[column]),
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
        make("summary", {}, `${spoken(name)} (${count(rows.length)})`),
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
