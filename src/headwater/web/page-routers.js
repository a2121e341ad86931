// Routers as a graph, and as a table.

import { get } from "./api.js";
import { badge, draw, field, head, make, refill, section } from "./element.js";
import { about, count } from "./format.js";
import { layout } from "./layout.js";
import { Rates, debounced, repeat } from "./live.js";
import { address, link, remember } from "./navigation.js";
import { Table } from "./table.js";

const DRAWN_MAX = 300;
const LISTED_MAX = 1_000;
const NAME_SHOWN = 22;

export function openRouters({ container, query, signal, problem }) {
    const wanted = make("input", {
        type: "search",
        "data-key": "/",
        value: query.get("contains") ?? "",
        placeholder: "part of a router's or topic's name",
    });
    const graph = make("div", {
        class: "graph",
        tabindex: "0",
        role: "group",
        "aria-label": "Graph of routers",
    });
    const note = make("span", { class: "quiet" });
    const table = routersTable();
    const rates = new Rates();
    let drawn = "";
    const refresh = async () => {
        const page = await get(`/v0/routers?page_size=${LISTED_MAX}`, { signal });
        const part = wanted.value.trim();
        const routers = page.routers.filter((router) =>
            [router.router, router.source, router.dest].some((name) => name.includes(part)),
        );
        for (const router of routers)
            router.rate = rates.observe(router.router, router.forwarded_total);
        table.update(routers);
        const shown = routers.slice(0, DRAWN_MAX);
        // Drawn again only when something in it is another: the focus and the scroll position stay.
        const now = JSON.stringify(
            shown.map((router) => [
                router.router,
                router.source,
                router.dest,
                label(router),
                kind(router),
            ]),
        );
        if (now !== drawn)
            refill(
                graph,
                shown.length
                    ? graphOf(shown)
                    : make("p", { class: "quiet" }, "There are no routers."),
            );
        drawn = now;
        const all = `${count(routers.length)}${page.next_cursor ? " or more" : ""}`;
        note.textContent =
            routers.length > DRAWN_MAX
                ? `The first ${DRAWN_MAX} of ${all} are drawn; search for others.`
                : "";
    };
    wanted.addEventListener(
        "input",
        debounced(() => {
            remember(["routers"], { contains: wanted.value.trim() });
            refresh().catch((error) => signal.aborted || problem(error));
        }),
    );
    refill(
        container,
        head("Routers", "what is copied from where to where"),
        make(
            "div",
            { class: "controls" },
            make("div", { class: "grow" }, field("Search", wanted)),
            note,
        ),
        graph,
        section("All of them", "", table.element),
    );
    repeat(2_000, signal, refresh, problem);
}

function routersTable() {
    return new Table(
        [
            {
                title: "Router",
                kind: "name",
                once: true,
                cell: (row) => make("span", {}, row.router),
            },
            {
                title: "From",
                kind: "name",
                once: true,
                cell: (row) => link(row.source, "topic", row.source),
            },
            {
                title: "To",
                kind: "name",
                once: true,
                cell: (row) => link(row.dest, "topic", row.dest),
            },
            { title: "Filter", cell: (row) => row.filter ?? "all" },
            { title: "Copied", kind: "number", cell: (row) => about(row.forwarded_total) },
            { title: "Router lag", kind: "number", cell: (row) => about(row.lag) },
            { title: "Guarantee", cell: (row) => row.guarantee.replaceAll("_", " ") },
            {
                title: "",
                cell: (row) => (row.held ? badge("held: the destination is full", "bad") : ""),
            },
        ],
        (row) => row.router,
        "There are no routers.",
    );
}

function kind(router) {
    return router.held ? "held" : router.lag > 1_000 ? "behind" : "";
}

/** What stands at an edge: its filter, and how far it is behind when that is worth saying. */
function label(router) {
    return [
        router.filter,
        router.held ? "held" : "",
        router.lag > 1_000 ? `${about(router.lag)} behind` : "",
    ]
        .filter(Boolean)
        .join(", ");
}

function graphOf(routers) {
    const positions = layout(routers.map((router) => ({ from: router.source, to: router.dest })));
    const { boxWidth, boxHeight, width, height } = positions;
    const marker = draw(
        "marker",
        {
            id: "arrow",
            viewBox: "0 0 8 8",
            refX: 7,
            refY: 4,
            markerWidth: 7,
            markerHeight: 7,
            orient: "auto",
        },
        draw("path", { d: "M0 0 8 4 0 8z" }),
    );
    const edges = routers.map((router) => edge(router, positions));
    const boxes = [...positions.nodes].map(([name, { x, y }]) =>
        draw(
            "a",
            { href: address("topic", name), class: "topic" },
            draw("title", {}, name),
            draw("rect", { x, y, width: boxWidth, height: boxHeight, rx: 5 }),
            draw(
                "text",
                { x: x + 10, y: y + boxHeight / 2 + 4 },
                name.length > NAME_SHOWN ? `${name.slice(0, NAME_SHOWN - 2)}..` : name,
            ),
        ),
    );
    const size = {
        width: width + 30,
        height: height + 10,
        viewBox: `0 0 ${width + 30} ${height + 10}`,
    };
    return draw(
        "svg",
        { ...size, role: "img", "aria-label": `${routers.length} routers` },
        draw("defs", {}, marker),
        edges,
        boxes,
    );
}

function edge(router, { nodes, boxWidth, boxHeight }) {
    const from = nodes.get(router.source);
    const to = nodes.get(router.dest);
    const [x1, y1] = [from.x + boxWidth, from.y + boxHeight / 2];
    const [x2, y2] = [to.x, to.y + boxHeight / 2];
    // What goes back, in a circle, bows out below; what goes on is an even curve.
    const bend = x2 > x1 ? (x2 - x1) / 2 : 60;
    const drop = x2 > x1 ? 0 : 40;
    const path = `M${x1} ${y1}C${x1 + bend} ${y1 + drop} ${x2 - bend} ${y2 + drop} ${x2 - 2} ${y2}`;
    const text = label(router);
    return draw(
        "g",
        {},
        draw(
            "path",
            { class: `edge ${kind(router)}`.trim(), d: path, "marker-end": "url(#arrow)" },
            draw("title", {}, `${router.router}: ${router.source} to ${router.dest}`),
        ),
        text && draw("text", { class: "label", x: x2 - 12, y: y2 - 5, "text-anchor": "end" }, text),
    );
}
