// One topic: its numbers, its records, and a way to write one.

import { get, named } from "./api.js";
import { badge, facts, make, refill, section } from "./element.js";
import { ago, count, rate, size } from "./format.js";
import { Rates, repeat } from "./live.js";
import { link } from "./navigation.js";
import { durability, lastWrite, retention } from "./page-topics.js";
import { RecordBrowser } from "./records.js";
import { writeForm } from "./writing.js";

export function openTopic({ container, parts: [name = ""], signal, problem, reporter }) {
    const title = make("div", { class: "head" }, make("h1", { class: "mono" }, name));
    const about = make("div");
    const settings = make("pre");
    const browser = new RecordBrowser(name, { signal, problem: reporter("records") });
    refill(
        container,
        title,
        about,
        section(
            "Records",
            "newest first",
            writeForm(name, { problem: reporter("writing"), written: () => browser.latest() }),
            browser.element,
        ),
        make("details", { class: "fold" }, make("summary", {}, "Settings"), settings),
    );
    const rates = new Rates();
    repeat(
        2_000,
        signal,
        async () => {
            const [topic, { routers }] = await Promise.all([
                get(`/v0/topics/${named(name)}?touch=false`, { signal }),
                get(`/v0/routers?source=${named(name)}`, { signal }),
            ]);
            refill(
                title,
                make("h1", { class: "mono" }, name),
                badge(topic.type, topic.queue ? "water" : ""),
                durability(topic.config),
            );
            refill(about, factsOf(topic, routers, rates.observe(topic.epoch, topic.head_seq)));
            const text = JSON.stringify(topic.config, null, 2);
            if (settings.textContent !== text) settings.textContent = text;
        },
        problem,
    );
}

function factsOf(topic, routers, perSecond) {
    const lag = Math.max(0, ...routers.map((router) => router.lag));
    const lost = topic.evict_floor > 1 ? `, lost below ${count(topic.evict_floor)}` : "";
    return facts([
        ["Written", rate(perSecond ?? 0)],
        ["Records", count(topic.count)],
        ["Size", size(topic.bytes)],
        ["Head", count(topic.head_seq)],
        ["Floor", `${count(topic.earliest_seq)}${lost}`],
        ["Router lag", routers.length ? `${count(lag)} of ${routers.length}` : "no routers"],
        ["Retained", retention(topic.config)],
        ["Last write", lastWrite(topic)],
        ["Last read", topic.last_read_ts ? ago(topic.last_read_ts) : "never"],
        ["Priority", count(topic.effective_priority)],
        ...(topic.queue
            ? [
                  [
                      "Jobs",
                      link(
                          `${count(topic.queue.ready)} ready, ${count(topic.queue.in_flight)} in flight`,
                          "queue",
                          topic.topic,
                      ),
                  ],
              ]
            : []),
    ]);
}
