// One queue: its jobs by what becomes of them, and its dead letters, which can go back.

import { get, named } from "./api.js";
import { tile } from "./chart.js";
import { facts, make, refill, section } from "./element.js";
import { about, count, span } from "./format.js";
import { repeat } from "./live.js";
import { link } from "./navigation.js";
import { pauser } from "./page-queues.js";
import { RecordBrowser } from "./records.js";
import { writeForm } from "./writing.js";

const SAMPLES_MAX = 90;

export function openQueue({ container, parts: [name = ""], signal, problem, reporter }) {
    const tiles = make("div", { class: "tiles" });
    const settings = make("div", { class: "section" });
    const letters = make("div");
    const tools = make("span");
    const samples = [];
    let dead = null;
    const refresh = async () => {
        const topic = await get(`/v0/topics/${named(name)}?touch=false`, { signal });
        if (!topic.queue) {
            location.replace(`#/topic/${named(name)}`);
            return;
        }
        samples.push(topic.queue);
        if (samples.length > SAMPLES_MAX) samples.shift();
        refill(tiles, tilesOf(topic.queue, samples));
        refill(
            tools,
            pauser(topic, { changed: () => refresh().catch(problem), problem: reporter("pausing") }),
        );
        refill(settings, settingsOf(topic.config));
        if (dead !== topic.config.dead_letter) {
            dead = topic.config.dead_letter;
            await showLetters(letters, name, dead, {
                signal,
                problem: reporter("records"),
                requeued: refresh,
            });
        }
    };
    refill(
        container,
        make(
            "div",
            { class: "head" },
            make("h1", { class: "mono" }, name),
            make("span", { class: "quiet" }, link("all its records", "topic", name)),
            tools,
        ),
        tiles,
        settings,
        writeForm(name, { problem: reporter("writing"), written: refresh }),
        letters,
    );
    repeat(2_000, signal, refresh, problem);
}

function tilesOf(queue, samples) {
    const values = (pick) => samples.map(pick);
    return [
        tile("Ready", about(queue.ready), { values: values((each) => each.ready) }),
        tile("In flight", about(queue.in_flight), { values: values((each) => each.in_flight) }),
        tile("Delayed", about(queue.delayed), { values: values((each) => each.delayed) }),
        tile("Given up", about(queue.dead_lettered), {
            state: queue.dead_lettered ? "warn" : null,
            more: "since it was created",
        }),
        ...(queue.blocked
            ? [
                  tile("Blocked", about(queue.blocked), {
                      state: "bad",
                      more: `no dead letter: ${queue.blocked_reason}`,
                  }),
              ]
            : []),
    ];
}

function settingsOf(config) {
    return facts([
        ["Lease", span(config.lease_ms)],
        [
            "Deliveries",
            config.max_deliveries ? `at most ${count(config.max_deliveries)}` : "any number",
        ],
        ["Order", config.fifo_key ? `one at a time by ${config.fifo_key}` : "none"],
        ["Leases", config.leases_durable ? "survive a crash" : "in memory"],
        ["Durability", config.durability],
        ["Claims", config.paused ? "paused" : "open"],
    ]);
}

async function showLetters(container, queue, topic, options) {
    if (!topic) {
        refill(
            container,
            section(
                "Dead letters",
                "This queue has no dead letter topic: a job is tried for ever.",
            ),
        );
        return;
    }
    try {
        await get(`/v0/topics/${named(topic)}?touch=false`);
    } catch (error) {
        if (error.status !== 404) throw error;
        refill(container, section("Dead letters", `None so far; they will come into ${topic}.`));
        return;
    }
    const browser = new RecordBrowser(topic, { ...options, origin: queue });
    const shown = section("Dead letters", "", browser.element);
    shown
        .querySelector("header .quiet")
        .append(
            "in ",
            link(topic, "topic", topic),
            ": jobs of this queue that were delivered too often",
        );
    refill(container, shown);
}
