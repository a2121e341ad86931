// Tables that change under the reader's eyes: rows are known by a key, cells only change when what
// they say does, and what has the focus keeps it.

import { make, refill, say } from "./element.js";

/**
 * Columns are `{title, cell, kind, once}`: `cell(row)` gives text or an element, `kind` a class for
 * the cells, `once` says that a row's cell never changes. `key(row)` tells rows apart.
 */
export class Table {
    #columns;
    #key;
    #rows = new Map();
    #body;
    #empty;

    constructor(columns, key, empty) {
        this.#columns = columns;
        this.#key = key;
        this.#empty = make(
            "tr",
            {},
            make("td", { class: "empty", colspan: columns.length }, empty),
        );
        this.#body = make("tbody");
        const titles = columns.map((column) =>
            make("th", { scope: "col", class: column.kind }, column.title),
        );
        this.element = make(
            "div",
            { class: "scroll" },
            make("table", {}, make("thead", {}, make("tr", {}, titles)), this.#body),
        );
    }

    update(rows) {
        const kept = new Map();
        for (const row of rows) {
            const key = this.#key(row);
            const element = this.#rows.get(key) ?? this.#newRow();
            this.#columns.forEach((column, at) => change(element.cells[at], column, row));
            kept.set(key, element);
        }
        for (const [key, element] of this.#rows) if (kept.get(key) !== element) element.remove();
        this.#rows = kept;
        this.#arrange([...kept.values()]);
    }

    #newRow() {
        return make(
            "tr",
            {},
            this.#columns.map((column) => make("td", { class: column.kind })),
        );
    }

    /** Move only what is not in its place: moving takes the focus away. */
    #arrange(elements) {
        this.#empty.remove();
        elements.forEach((element, at) => {
            if (this.#body.children[at] !== element)
                this.#body.insertBefore(element, this.#body.children[at] ?? null);
        });
        if (!elements.length) this.#body.append(this.#empty);
    }
}

function change(cell, column, row) {
    if (column.once && cell.hasChildNodes()) return;
    const shown = column.cell(row);
    if (shown instanceof Node) {
        const before = cell.firstChild;
        if (before?.nodeType === Node.ELEMENT_NODE && before.isEqualNode(shown)) return;
        refill(cell, shown);
    } else {
        say(cell, String(shown ?? ""));
        cell.classList.toggle("zero", shown === "0" || shown === "0/s" || shown === "none");
    }
}

/** Back and forth through pages that the server gives with a cursor. */
export class Pager {
    #before = [];
    #next = null;
    cursor = null;

    constructor(turned) {
        const turn = (move) => () => {
            move();
            turned();
        };
        this.back = make(
            "button",
            {
                type: "button",
                "data-key": "p",
                click: turn(() => (this.cursor = this.#before.pop() ?? null)),
            },
            "Previous",
        );
        this.on = make(
            "button",
            { type: "button", "data-key": "n", click: turn(() => this.#forward()) },
            "Next",
        );
        this.text = make("span", { class: "quiet" });
        this.element = make("div", { class: "controls" }, this.back, this.on, this.text);
        this.show(null, 0);
    }

    #forward() {
        this.#before.push(this.cursor);
        this.cursor = this.#next;
    }

    restart() {
        this.#before = [];
        this.cursor = null;
    }

    /** A page was read: where the next one begins, and how many rows this one has. */
    show(next, rows) {
        this.#next = next ?? null;
        this.back.disabled = !this.#before.length;
        this.on.disabled = this.#next === null;
        this.element.hidden = this.back.disabled && this.on.disabled;
        say(this.text, `Page ${this.#before.length + 1}, ${rows} rows`);
    }
}
