// All queues: what waits, what is being worked on, what was given up.

import { named, put } from "./api.js";
import { badge, field, head, make, refill } from "./element.js";
import { about, span } from "./format.js";
import { listTopics } from "./listing.js";
import { debounced, repeat } from "./live.js";
import { link, remember } from "./navigation.js";
import { Pager, Table } from "./table.js";

export function openQueues({ container, query, signal, problem, reporter }) {
    const contains = make("input", {
        type: "search",
        "data-key": "/",
        value: query.get("contains") ?? "",
        placeholder: "part of a name",
    });
    const table = new Table(
        [
            {
                title: "Queue",
                kind: "name",
                once: true,
                cell: (row) => link(row.topic, "queue", row.topic),
            },
            { title: "Ready", kind: "number", cell: (row) => about(row.queue.ready) },
            { title: "In flight", kind: "number", cell: (row) => about(row.queue.in_flight) },
            { title: "Delayed", kind: "number", cell: (row) => about(row.queue.delayed) },
            { title: "Given up", kind: "number", cell: (row) => about(row.queue.dead_lettered) },
            { title: "Blocked", kind: "number", cell: (row) => about(row.queue.blocked) },
            {
                title: "Dead letters in",
                kind: "name",
                cell: (row) =>
                    row.config.dead_letter
                        ? link(row.config.dead_letter, "topic", row.config.dead_letter)
                        : "none",
            },
            {
                title: "Deliveries",
                kind: "number",
                cell: (row) =>
                    row.config.max_deliveries
                        ? `at most ${row.config.max_deliveries}`
                        : "any number",
            },
            { title: "Lease", kind: "number", cell: (row) => span(row.config.lease_ms) },
            { title: "", cell: (row) => pauseButton(row, () => now()) },
        ],
        (row) => `${row.topic} ${row.epoch}`,
        "There are no queues. The setting type makes a topic a queue.",
    );
    const refresh = async () => {
        const options = { contains: contains.value.trim(), type: "queue", cursor: pager.cursor };
        const turn = (turns += 1);
        const page = await listTopics(options, signal);
        if (turn !== turns) return; // another search has begun meanwhile
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
    contains.addEventListener(
        "input",
        debounced(() => {
            pager.restart();
            remember(["queues"], { contains: contains.value.trim() });
            now();
        }),
    );
    const pauseButton = (row, changed) => pauser(row, { changed, problem: reporter("pausing") });
    refill(
        container,
        head("Queues", ""),
        make(
            "div",
            { class: "controls" },
            make("div", { class: "grow" }, field("Search", contains)),
        ),
        table.element,
        pager.element,
    );
    repeat(2_000, signal, refresh, problem);
}

/** A button that stops claims of a queue, or lets them go on. */
export function pauser(queue, { changed, problem }) {
    const { paused } = queue.config;
    const press = async () => {
        try {
            await put(`/v0/topics/${named(queue.topic)}`, { paused: !paused });
            changed();
        } catch (error) {
            problem(error);
        }
    };
    const button = make("button", { type: "button", click: press }, paused ? "Resume" : "Pause");
    return make("span", {}, paused ? [badge("paused", "warn"), " "] : null, button);
}
