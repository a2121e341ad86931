// Writing one record by hand.

import { Mistake, named, post } from "./api.js";
import { field, make, say } from "./element.js";
import { count } from "./format.js";
import { parseExactly } from "./reading.js";

/** A form that folds away. It calls `written` after a write. */
export function writeForm(topic, { problem, written = () => {} }) {
    const data = make("textarea", {
        rows: 4,
        placeholder: '{"total": 42}   or any text',
        spellcheck: "false",
    });
    const tag = make("input", { type: "text" });
    const node = make("input", { type: "text" });
    const meta = make("input", { type: "text", placeholder: '{"source": "by hand"}', size: 28 });
    const answer = make("span", { class: "quiet", role: "status" });
    const send = async (event) => {
        event?.preventDefault();
        try {
            const result = await post(`/v0/topics/${named(topic)}`, {
                records: [recordOf(data, tag, node, meta)],
            });
            const took = result.performance.server_total_ms.toFixed(1);
            say(answer, `Written as seq ${count(result.first_seq)} in ${took} ms.`);
            problem(null);
            written();
        } catch (error) {
            problem(error);
        }
    };
    data.addEventListener("keydown", (event) => {
        if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) send(event);
    });
    const row = make(
        "div",
        { class: "row" },
        field("Tag", tag),
        field("Node", node),
        field("Meta, as JSON", meta),
        make("button", { class: "main" }, "Write"),
        answer,
    );
    const form = make(
        "form",
        { class: "writing", submit: send },
        field("Data: JSON, or text that is written as a string. Ctrl+Enter writes.", data),
        row,
    );
    const fold = make(
        "details",
        { class: "fold" },
        make("summary", { "data-key": "w" }, "Write a record"),
        form,
    );
    fold.addEventListener("toggle", () => fold.open && data.focus());
    return fold;
}

function recordOf(data, tag, node, meta) {
    const record = { data: jsonOrText(data.value) };
    if (tag.value) record.tag = tag.value;
    if (node.value) record.node = node.value;
    if (meta.value.trim()) {
        try {
            record.meta = JSON.parse(meta.value);
        } catch (error) {
            throw new Mistake(`The meta is not JSON: ${error.message}.`);
        }
    }
    return record;
}

function jsonOrText(text) {
    try {
        return parseExactly(text);
    } catch {
        return text;
    }
}
