// The record browser: a page of records, newest first, with filters, gaps where they are, and a tail.

import { ApiError, get, named, post } from "./api.js";
import { field, make, refill, say } from "./element.js";
import { clock, count } from "./format.js";
import { follow } from "./following.js";
import { debounced } from "./live.js";
import { COLUMNS, emptyText, gapRows, lostRow, toggle } from "./record-rows.js";
import { asNumber, Filter, parseExactly, readBackwards } from "./reading.js";

const PAGE = 50;
const SHOWN_MAX = 500;
const PREVIEW = 400;

export class RecordBrowser {
    #topic;
    #signal;
    #problem;
    #origin;
    #requeued;
    #before = null;
    #newer = [];
    #reached = 0;
    #tail = null;
    #busy = null;
    #held = [];

    /** With `origin`, only dead letters of that queue; calls `requeued` when some went back. */
    constructor(topic, { signal, problem, origin = null, requeued = () => {} }) {
        this.#topic = topic;
        this.#signal = signal;
        this.#problem = problem;
        this.#origin = origin;
        this.#requeued = requeued;
        this.#build();
        signal.addEventListener("abort", () => this.#stopTail(), { once: true });
        this.latest();
    }

    #build() {
        const changed = debounced(() => this.latest());
        const input = (title, hint, key) => {
            const control = make("input", {
                type: "search",
                placeholder: hint,
                "data-key": key,
                input: changed,
            });
            return [control, field(title, control)];
        };
        const button = (text, key, click) =>
            make("button", { type: "button", "data-key": key, click }, text);
        const [tag, tagField] = input("Tag", "paid or pa*", null);
        const [node, nodeField] = input("Node", "shop or shop-*", null);
        const [text, textField] = input("Text", "anywhere in data or meta", "/");
        Object.assign(this, { tag, node, text });
        this.seq = make("input", {
            type: "number",
            min: 1,
            placeholder: "seq",
            change: () => this.#jump(),
        });
        this.live = make(
            "button",
            {
                type: "button",
                "data-key": "l",
                "aria-pressed": "false",
                click: () => this.#toggleTail(),
            },
            "Live",
        );
        this.older = button("Older", "n", () => this.#older());
        this.recent = button("Newer", "p", () => this.#newerPage());
        this.first = button("Latest", null, () => this.latest());
        this.note = make("span", { class: "quiet", role: "status" });
        const release = () => this.body.matches(":hover, :focus-within") || this.#release();
        this.body = make("tbody", { pointerleave: release, focusout: () => setTimeout(release) });
        const titles = ["Seq", "Time", "Tag", "Node", "Data"].map((title, at) =>
            make("th", { scope: "col", class: at ? null : "number" }, title),
        );
        const table = make(
            "table",
            { class: "records" },
            make("thead", {}, make("tr", {}, titles)),
            this.body,
        );
        this.element = make(
            "div",
            {},
            make(
                "div",
                { class: "controls" },
                tagField,
                nodeField,
                make("div", { class: "grow" }, textField),
                field("Go to", this.seq),
                this.live,
            ),
            make("div", { class: "scroll" }, table),
            make(
                "div",
                { class: "controls" },
                this.first,
                this.recent,
                this.older,
                this.#letterButton(),
                this.note,
            ),
        );
    }

    #letterButton() {
        if (!this.#origin) return null;
        return make(
            "button",
            { type: "button", click: () => this.#requeue(this.#shownSeqs()) },
            "Requeue all shown",
        );
    }

    get #filter() {
        return new Filter({
            tag: this.tag.value,
            node: this.node.value,
            text: this.text.value,
            origin: this.#origin,
        });
    }

    /** Show the newest records. */
    async latest() {
        this.#newer = [];
        await this.#open(null);
        if (this.#tail) this.#startTail();
    }

    #jump() {
        const seq = this.seq.valueAsNumber;
        this.#stopTail();
        this.#newer = [];
        this.#open(seq >= 1 ? seq + 1 : null);
    }

    #older() {
        this.#stopTail();
        this.#newer.push(this.#before);
        this.#open(this.#reached + 1);
    }

    #newerPage() {
        this.#stopTail();
        this.#open(this.#newer.length ? this.#newer.pop() : this.#before + PAGE);
    }

    /** Read the records below a seq; null is the newest. */
    async #open(before) {
        this.#busy?.abort();
        const busy = (this.#busy = new AbortController());
        const signal = AbortSignal.any([this.#signal, busy.signal]);
        this.element.setAttribute("aria-busy", "true");
        try {
            const { head_seq: headSeq } = await get(
                `/v0/topics/${named(this.#topic)}?touch=false`,
                { signal },
            );
            this.#before = Math.min(before ?? headSeq + 1, headSeq + 1);
            const filter = this.#filter;
            const result = await readBackwards(this.#topic, this.#before, PAGE, filter, signal);
            this.#reached = result.reached;
            this.#show(result, filter, headSeq);
            this.#problem(null);
        } catch (error) {
            if (!signal.aborted) this.#problem(error);
        } finally {
            if (this.#busy === busy) this.element.removeAttribute("aria-busy");
        }
    }

    #show(result, filter, headSeq) {
        const rows = [];
        let above = this.#before;
        for (const record of result.records) {
            const seq = asNumber(record.$seq);
            rows.push(...gapRows(seq + 1, above - 1, result.gaps, filter.isOpen));
            rows.push(this.#recordRow(record));
            above = seq;
        }
        const below = result.tombstone ? result.tombstone.gap_to : result.reached;
        rows.push(...gapRows(below + 1, above - 1, result.gaps, filter.isOpen));
        if (result.tombstone) rows.push(lostRow(result.tombstone));
        if (!rows.length)
            rows.push(
                make(
                    "tr",
                    {},
                    make("td", { class: "empty", colspan: COLUMNS }, emptyText(filter, result)),
                ),
            );
        refill(this.body, rows);
        this.older.disabled = result.reached === 0;
        this.recent.disabled = this.#before > headSeq;
        say(
            this.older,
            !filter.isOpen && result.records.length < PAGE && result.reached
                ? "Search further"
                : "Older",
        );
        const scanned = filter.isOpen ? "" : `, scanned ${count(result.scanned)} seqs`;
        say(
            this.note,
            `${count(result.records.length)} records, head is ${count(headSeq)}${scanned}`,
        );
    }

    #recordRow(record) {
        const seq = asNumber(record.$seq);
        const opener = make(
            "button",
            {
                type: "button",
                class: "plain",
                "aria-expanded": "false",
                click: () => toggle(row, opener, record),
            },
            count(seq),
        );
        const preview = JSON.stringify(record.data);
        const cells = [
            make("td", { class: "number" }, opener, this.#requeueCell(record, seq)),
            make("td", {}, clock(asNumber(record.$ts))),
            make("td", {}, record.$tag ?? ""),
            make("td", {}, record.$node ?? ""),
            make(
                "td",
                { class: "data" },
                preview.length > PREVIEW ? `${preview.slice(0, PREVIEW)}...` : preview,
            ),
        ];
        const row = make("tr", { "data-seq": seq }, cells);
        return row;
    }

    #requeueCell(record, seq) {
        if (typeof record.meta?.$dead_letter_from !== "string") return null;
        const name = `Requeue seq ${seq} to ${record.meta.$dead_letter_from}`;
        return [
            " ",
            make(
                "button",
                {
                    type: "button",
                    "aria-label": name,
                    title: name,
                    click: () => this.#requeue([seq]),
                },
                "Requeue",
            ),
        ];
    }

    #shownSeqs() {
        return [...this.body.querySelectorAll("tr[data-seq]")].map((row) =>
            Number(row.dataset.seq),
        );
    }

    async #requeue(seqs) {
        if (!seqs.length) return;
        try {
            const { requeued, skipped } = await post(`/v0/topics/${named(this.#topic)}/requeue`, {
                seqs,
            });
            await this.latest();
            say(
                this.note,
                `${count(requeued)} requeued${skipped.length ? `, ${count(skipped.length)} stayed` : ""}`,
            );
            this.#requeued();
        } catch (error) {
            this.#problem(error);
        }
    }

    // -- the tail

    async #toggleTail() {
        if (this.#tail) return this.#stopTail();
        this.#tail = new AbortController();
        this.live.setAttribute("aria-pressed", "true");
        await this.latest();
    }

    async #startTail() {
        this.#tail?.abort();
        this.#held = [];
        const tail = (this.#tail = new AbortController());
        const filter = this.#filter;
        const signal = AbortSignal.any([this.#signal, tail.signal]);
        try {
            const options = { match: filter.tag, parse: parseExactly, signal };
            await follow(
                this.#topic,
                this.#before - 1,
                options,
                (event) => !signal.aborted && this.#onEvent(event, filter),
            );
        } catch (error) {
            if (signal.aborted) return;
            this.#stopTail();
            this.#problem(error);
        }
    }

    #stopTail() {
        this.#held = [];
        this.#tail?.abort();
        this.#tail = null;
        this.live.setAttribute("aria-pressed", "false");
        say(this.live, "Live");
    }

    #onEvent(event, filter) {
        if (event.name === "open") say(this.live, "Live: following");
        if (event.name === "closed") say(this.live, "Live: waiting");
        if (event.name === "tombstone") this.#prepend([lostRow(event.data)]);
        if (event.name === "record") {
            const rows = event.data.records
                .filter((record) => filter.keeps(record))
                .map((record) => this.#recordRow(record));
            for (const row of rows) row.classList.add("fresh");
            this.#prepend(rows.reverse());
            say(this.note, `following, head is ${count(event.data.head_seq)}`);
        }
        if (event.name === "topic-deleted")
            this.#problem(
                new ApiError(404, { code: "topic_not_found", message: "The topic was dropped" }),
            );
        if (event.name === "error") this.#problem(new ApiError(500, event.data));
    }

    /** Show new records, unless the pointer or the focus is on a row: it must not move away. */
    #prepend(rows) {
        this.#held.unshift(...rows);
        this.#held.length = Math.min(this.#held.length, SHOWN_MAX);
        if (this.body.matches(":hover, :focus-within")) {
            if (this.#held.length) say(this.live, `Live: ${count(this.#held.length)} new`);
        } else this.#release();
    }

    #release() {
        if (!this.#held.length) return;
        this.body.querySelector("td.empty")?.parentElement.remove();
        this.body.prepend(...this.#held);
        this.#held = [];
        while (this.body.children.length > SHOWN_MAX) this.body.lastElementChild.remove();
        if (this.#tail) say(this.live, "Live: following");
    }
}
