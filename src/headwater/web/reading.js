// Reading a topic backwards, newest record first, in chunks, with filters.

import { named, post } from "./api.js";

const CHUNK = 1_000;
const PIECE_BYTES = 4 * 1024 * 1024;

/** Seqs that one search scans before it asks whether to go on. */
const SCANNED_MAX = 20_000;

/**
 * JSON with its numbers as they were sent: a large one is not rounded where the browser can keep it.
 */
export function parseExactly(text) {
    if (!JSON.rawJSON) return JSON.parse(text);
    return JSON.parse(text, (_key, value, context) =>
        typeof value === "number" && String(value) !== context?.source && context?.source
            ? JSON.rawJSON(context.source)
            : value,
    );
}

/** The number behind `parseExactly`, for those that are numbers to us. */
export function asNumber(value) {
    return typeof value === "number" ? value : Number(JSON.stringify(value));
}

/** Which records are wanted: the server filters by tag, the page by node and by text. */
export class Filter {
    constructor({ tag = "", node = "", text = "", origin = null } = {}) {
        this.tag = tag.trim();
        this.node = node.trim();
        this.text = text.trim().toLowerCase();
        this.origin = origin;
    }

    get isOpen() {
        return !this.tag && !this.node && !this.text && !this.origin;
    }

    keeps(record) {
        if (this.origin && record.meta?.$dead_letter_from !== this.origin) return false;
        if (this.node && !fits(record.$node ?? "", this.node)) return false;
        if (!this.text) return true;
        return JSON.stringify([record.data, record.meta ?? null])
            .toLowerCase()
            .includes(this.text);
    }
}

function fits(name, pattern) {
    return pattern.endsWith("*") ? name.startsWith(pattern.slice(0, -1)) : name === pattern;
}

/**
 * Up to `wanted` records below the seq `before`, newest first. `reached` is the seq below which the
 * next search begins, 0 when there is nothing below; `tombstone` tells what was lost down there, and
 * `gaps` which stretches between the records were lost or cannot be read, newest first.
 */
export async function readBackwards(topic, before, wanted, filter, signal) {
    const chunk = filter.isOpen ? wanted : CHUNK;
    const records = [];
    const gaps = [];
    let tombstone = null;
    let high = before - 1;
    let scanned = 0;
    while (high > 0 && records.length < wanted && scanned < SCANNED_MAX) {
        const low = Math.max(high - chunk, 0);
        const part = await readBetween(topic, low, high, filter, signal);
        records.push(...part.records.filter((record) => filter.keeps(record)).reverse());
        gaps.push(...part.gaps.filter((gap) => gap.gap_to >= part.earliest).reverse());
        tombstone = part.gaps.find((gap) => gap.gap_to < part.earliest) ?? null;
        scanned += high - low;
        high = low < part.earliest ? 0 : low;
    }
    if (records.length <= wanted) return { records, reached: high, scanned, tombstone, gaps };
    records.length = wanted;
    const reached = asNumber(records.at(-1).$seq) - 1;
    return { records, reached, scanned, tombstone: null, gaps };
}

/** All records with `low < seq <= high`, oldest first. */
async function readBetween(topic, low, high, filter, signal) {
    const result = { records: [], gaps: [], earliest: 0 };
    for (let from = low; from < high;) {
        const body = {
            from_seq: from,
            limit: Math.min(high - from, CHUNK),
            max_batch_bytes: PIECE_BYTES,
            include_tags: true,
        };
        if (filter.tag) body.match = filter.tag;
        const answer = await post(`/v0/topics/${named(topic)}/diff`, body, {
            signal,
            parse: parseExactly,
        });
        result.records.push(...answer.records.filter((record) => asNumber(record.$seq) <= high));
        const gap = answer.tombstone;
        // A gap may go on above what is scanned here: then that part was seen already.
        if (gap && gap.gap_from <= high)
            result.gaps.push({ ...gap, gap_to: Math.min(gap.gap_to, high) });
        result.earliest = answer.earliest_seq;
        if (answer.caught_up || answer.next_from_seq <= from) break;
        from = answer.next_from_seq;
    }
    return result;
}
