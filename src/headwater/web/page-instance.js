// One instance of a machine: its state and its history.

import { get, named } from "./api.js";
import { badge, facts, make, refill, section } from "./element.js";
import { ago, clock } from "./format.js";
import { repeat } from "./live.js";
import { link } from "./navigation.js";
import { showPicture } from "./picture.js";
import { Table } from "./table.js";

export function openInstance({ container, parts: [id = ""], signal, problem }) {
    const about = make("div");
    const context = make("pre", { class: "card" });
    const picture = make("img", { class: "drawing", alt: `The state of ${id}` });
    const note = make(
        "p",
        { class: "notice soft", hidden: true },
        "The beginning of its history was compacted away.",
    );
    const table = new Table(
        [
            { title: "When", cell: (row) => clock(row.ts) },
            { title: "What", cell: (row) => row.event ?? row.type },
            { title: "From", kind: "name", cell: (row) => row.from_state ?? "" },
            { title: "To", kind: "name", cell: (row) => row.to_state ?? "" },
            {
                title: "Payload",
                kind: "wrap mono",
                cell: (row) => (row.payload ? JSON.stringify(row.payload) : ""),
            },
            { title: "Offset in the log", kind: "number mono", cell: (row) => row.wal_offset_text },
        ],
        (row) => row.wal_offset_text,
        "Nothing has happened to it.",
    );
    let shownOffset = null;
    refill(
        container,
        make("div", { class: "head" }, make("h1", { class: "mono" }, id)),
        about,
        make(
            "div",
            { class: "columns" },
            section("Drawing", "", make("div", { class: "graph" }, picture)),
            section("Context", "", context),
        ),
        section("History", "newest first", note, table.element),
    );
    repeat(
        2_000,
        signal,
        async () => {
            const instance = await get(`/v0/instances/${named(id)}`, { signal });
            if (instance.last_wal_offset_text === shownOffset) return;
            const history = await get(`/v0/instances/${named(id)}/history`, { signal });
            shownOffset = instance.last_wal_offset_text;
            note.hidden = history.complete;
            refill(about, factsOf(instance));
            context.textContent = JSON.stringify(instance.ctx, null, 2);
            table.update([...history.entries].reverse());
            const drawing = `/v0/machines/${named(instance.machine)}/versions/${instance.version}/drawing`;
            await showPicture(picture, `${drawing}?format=svg&instance=${named(id)}`, signal);
        },
        problem,
    );
}

function factsOf(instance) {
    return facts([
        ["State", badge(instance.state, "water")],
        [
            "Machine",
            link(
                `${instance.machine}, version ${instance.version}`,
                "machine",
                instance.machine,
                String(instance.version),
            ),
        ],
        ["Changed", ago(instance.updated_at)],
        ["Created", clock(instance.created_at)],
        ...(instance.expires_at ? [["Ends", clock(instance.expires_at)]] : []),
        ...(instance.doubtful
            ? [["Damaged", badge("part of its history cannot be read", "bad")]]
            : []),
    ]);
}
