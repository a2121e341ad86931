// Addresses behind the hash, and links to them.

import { make } from "./element.js";

/** The address of a page: `address("topic", "orders")` is `#/topic/orders`. */
export function address(...parts) {
    return `#/${parts.map(encodeURIComponent).join("/")}`;
}

export function link(text, ...parts) {
    return make("a", { href: address(...parts) }, text);
}

/** The parts of the address that is shown, and what stands behind its question mark. */
export function whereWeAre() {
    const [path, query] = location.hash.replace(/^#\/?/, "").split("?", 2);
    return {
        parts: path.split("/").filter(Boolean).map(decoded),
        query: new URLSearchParams(query ?? ""),
    };
}

function decoded(part) {
    try {
        return decodeURIComponent(part);
    } catch {
        return part; // half an escape, typed by hand
    }
}

/** Remember what was searched for in the address, without a step in the history. */
export function remember(parts, wishes) {
    const query = new URLSearchParams(Object.entries(wishes).filter(([, value]) => value));
    const text = query.toString();
    history.replaceState(null, "", address(...parts) + (text ? `?${text}` : ""));
}
