// All state machines and their versions.

import { get } from "./api.js";
import { head, make, refill } from "./element.js";
import { count } from "./format.js";
import { repeat } from "./live.js";
import { link } from "./navigation.js";
import { Table } from "./table.js";

export function openMachines({ container, signal, problem }) {
    const missing = make(
        "p",
        { class: "notice soft", hidden: true },
        "This server has no state machines.",
    );
    const table = new Table(
        [
            {
                title: "Machine",
                kind: "name",
                once: true,
                cell: (row) => link(row.machine, "machine", row.machine, String(row.version)),
            },
            { title: "Version", kind: "number", cell: (row) => count(row.version) },
            { title: "", cell: (row) => (row.newest ? "newest" : "") },
        ],
        (row) => `${row.machine} ${row.version}`,
        "No machine was defined yet: PUT /v0/machines/NAME/versions/1 defines one.",
    );
    refill(
        container,
        head("Machines", "definitions; each version stays as it was"),
        missing,
        table.element,
    );
    repeat(
        5_000,
        signal,
        async () => {
            const items = await machines(signal);
            missing.hidden = items !== null;
            table.update(
                (items ?? []).flatMap(({ machine, versions }) => {
                    const newest = Math.max(...versions);
                    return versions
                        .map((version) => ({ machine, version, newest: version === newest }))
                        .reverse();
                }),
            );
        },
        problem,
    );
}

/** Null when this server knows nothing of machines. */
async function machines(signal) {
    try {
        return (await get("/v0/machines", { signal })).items;
    } catch (error) {
        if (error.status === 404) return null;
        throw error;
    }
}
