// Builds elements. Whatever comes from a server goes in as text: nothing here takes markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element. Attributes that are functions are listeners, by the name of the event. */
export function make(name, attributes, ...children) {
    return fill(document.createElement(name), attributes, children);
}

/** The same for a part of a drawing. */
export function draw(name, attributes, ...children) {
    return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes ?? {})) {
        if (value === null || value === undefined || value === false) continue;
        if (typeof value === "function") element.addEventListener(name, value);
        else element.setAttribute(name, value === true ? "" : String(value));
    }
    element.append(...present(children));
    return element;
}

/** What there is of these children: lists are opened, nothing is left out as nothing. */
function present(children) {
    return children
        .flat(Infinity)
        .filter((child) => child !== null && child !== undefined && child !== false);
}

/** Give an element other children. */
export function refill(element, ...children) {
    element.replaceChildren(...present(children));
    return element;
}

/** Change the text of an element only when it is another one: selections and readers stay. */
export function say(element, text) {
    if (element.textContent !== text) element.textContent = text;
}

export function badge(text, kind = "") {
    return make("span", { class: `badge ${kind}`.trim() }, text);
}

export function section(title, note, ...rest) {
    const header = make(
        "header",
        {},
        make("h2", {}, title),
        make("span", { class: "quiet" }, note ?? ""),
    );
    return make("section", { class: "section" }, header, ...rest);
}

export function head(title, note, ...rest) {
    return make(
        "div",
        { class: "head" },
        make("h1", {}, title),
        make("span", { class: "quiet" }, note ?? ""),
        ...rest,
    );
}

/** Names and values side by side. */
export function facts(entries) {
    const shown = entries.map(([name, value]) =>
        make("div", {}, make("dt", {}, name), make("dd", {}, value)),
    );
    return make("dl", { class: "facts" }, shown);
}

export function field(title, control) {
    return make("label", { class: "field" }, title, control);
}
