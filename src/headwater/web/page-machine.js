// One version of a machine: its drawing, how many instances are in each state, and which.

import { get, named } from "./api.js";
import { meter } from "./chart.js";
import { field, make, refill, say, section } from "./element.js";
import { ago, count } from "./format.js";
import { repeat } from "./live.js";
import { link } from "./navigation.js";
import { showPicture } from "./picture.js";
import { Pager, Table } from "./table.js";

const PAGE = 50;

export function openMachine({ container, parts: [name = "", version = "1"], signal, problem }) {
    const path = `/v0/machines/${named(name)}/versions/${named(version)}`;
    const picture = make("img", { class: "drawing", alt: `States and transitions of ${name}` });
    const counts = make("div");
    const state = make(
        "select",
        { "aria-label": "State" },
        make("option", { value: "" }, "all states"),
    );
    const definition = make("pre");
    const table = instancesTable();
    let definitionSeen = null;
    const refresh = async () => {
        definitionSeen ??= await learn();
        await Promise.all([showCounts(), showInstances()]);
    };
    const learn = async () => {
        const machine = await get(path, { signal });
        say(definition, JSON.stringify(machine.definition, null, 2));
        state.append(
            ...machine.definition.states.map((each) => make("option", { value: each }, each)),
        );
        await showPicture(picture, `${path}/drawing?format=svg`, signal);
        return machine.definition;
    };
    const listPath = (more) => `/v0/instances?${new URLSearchParams({ machine: name, ...more })}`;
    const showCounts = async () => {
        const { states } = definitionSeen;
        const answers = await Promise.all(
            states.map((each) => get(listPath({ state: each, limit: 1 }), { signal })),
        );
        refill(
            counts,
            countsOf(
                states,
                answers.map((answer) => answer.total),
            ),
        );
    };
    const showInstances = async () => {
        const offset = pager.cursor ?? 0;
        const answer = await get(
            listPath({ limit: PAGE, offset, ...(state.value ? { state: state.value } : {}) }),
            { signal },
        );
        table.update(answer.instances);
        pager.show(answer.has_more ? offset + PAGE : null, answer.instances.length);
    };
    const now = () => showInstances().catch((error) => signal.aborted || problem(error));
    const pager = new Pager(now);
    state.addEventListener("change", () => {
        pager.restart();
        now();
    });
    refill(
        container,
        make(
            "div",
            { class: "head" },
            make("h1", { class: "mono" }, name),
            make("span", { class: "quiet" }, `version ${version}`),
        ),
        make(
            "div",
            { class: "columns" },
            section("Drawing", "", make("div", { class: "graph" }, picture)),
            section("Instances by state", "of all versions", counts),
        ),
        section(
            "Instances",
            "",
            make("div", { class: "controls" }, field("State", state)),
            table.element,
            pager.element,
        ),
        make("details", { class: "fold" }, make("summary", {}, "Definition"), definition),
    );
    repeat(2_000, signal, refresh, problem);
}

function countsOf(states, totals) {
    const all = Math.max(
        totals.reduce((sum, each) => sum + each, 0),
        1,
    );
    return states.map((state, at) =>
        make(
            "div",
            { class: "card" },
            make(
                "header",
                {},
                make("span", { class: "mono" }, state),
                make("strong", {}, count(totals[at])),
            ),
            meter(totals[at] / all, { warn: 2, bad: 2, label: `Share of instances in ${state}` }),
        ),
    );
}

function instancesTable() {
    return new Table(
        [
            {
                title: "Instance",
                kind: "name",
                once: true,
                cell: (row) => link(row.id, "instance", row.id),
            },
            { title: "State", kind: "name", cell: (row) => row.state },
            { title: "Version", kind: "number", cell: (row) => count(row.version) },
            { title: "Changed", kind: "number", cell: (row) => ago(row.updated_at) },
            { title: "Created", kind: "number", cell: (row) => ago(row.created_at) },
        ],
        (row) => row.id,
        "No instance matches.",
    );
}
