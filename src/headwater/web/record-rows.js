// Rows of the record browser: missing seqs at their position, and a whole record.

import { make } from "./element.js";
import { count } from "./format.js";

export const COLUMNS = 5;

/** Why seqs are missing, as tombstones say it. */
const REASONS = {
    cap: "more than the topic may hold",
    ttl: "older than the topic keeps them",
    mixed: "by age and by number",
    recreated: "the topic was created again",
    source_trim: "lost in the source before they were copied",
    lost_tail: "lost in a crash",
    damaged: "damaged on the server's disk",
    from_seq_too_old: "this reader was too slow",
};

/** Why nothing is shown. */
export function emptyText(filter, result) {
    if (filter.isOpen) return "There are no records.";
    return result.reached
        ? "No match in the records scanned so far. Search further."
        : "No record matches.";
}

/**
 * What stands between two records, newest first: the stretches that were lost or are damaged, and,
 * if that is wanted, the deleted ones around them.
 */
export function gapRows(from, to, gaps, showsDeleted) {
    const rows = [];
    let above = to;
    for (const gap of gaps.filter((each) => each.gap_from <= to && each.gap_to >= from)) {
        const high = Math.min(gap.gap_to, above);
        const low = Math.max(gap.gap_from, from);
        if (high < low) continue;
        if (showsDeleted && high < above) rows.push(deletedRow(high + 1, above));
        rows.push(missingRow({ ...gap, gap_from: low, gap_to: high }));
        above = low - 1;
    }
    if (showsDeleted && above >= from) rows.push(deletedRow(from, above));
    return rows;
}

/** A stretch in the middle of the log that cannot be read. */
function missingRow(gap) {
    const why = REASONS[gap.reason] ?? gap.reason;
    const which =
        gap.gap_from === gap.gap_to
            ? `seq ${count(gap.gap_from)} is`
            : `seqs ${count(gap.gap_from)} to ${count(gap.gap_to)} are`;
    const text = `Tombstone: ${which} missing, ${why} (${gap.reason}).`;
    return make("tr", { class: "gone lost" }, make("td", { colspan: COLUMNS }, text));
}

/** Deleted or acked: shown as a gap without a reason. */
export function deletedRow(from, to) {
    const which =
        from === to ? `Seq ${count(from)} was` : `Seqs ${count(from)} to ${count(to)} were`;
    return make(
        "tr",
        { class: "gone" },
        make("td", { colspan: COLUMNS }, `${which} deleted or acked.`),
    );
}

/** A tombstone: what a cap or an age limit took before it was read here. */
export function lostRow(tombstone) {
    if (tombstone.reason === "damaged") return missingRow(tombstone);
    const why = REASONS[tombstone.reason] ?? tombstone.reason;
    const text = `Tombstone: seqs up to ${count(tombstone.gap_to)} are gone, ${why} (${tombstone.reason}).`;
    return make("tr", { class: "gone lost" }, make("td", { colspan: COLUMNS }, text));
}

/** Open or close the whole record under its row. */
export function toggle(row, opener, record) {
    const open = opener.getAttribute("aria-expanded") === "true";
    opener.setAttribute("aria-expanded", String(!open));
    if (open) return row.nextElementSibling.remove();
    const parts = [make("pre", {}, JSON.stringify(record.data, null, 2))];
    if (record.meta)
        parts.push(
            make("span", { class: "quiet" }, "meta"),
            make("pre", {}, JSON.stringify(record.meta, null, 2)),
        );
    row.after(make("tr", { class: "whole" }, make("td", { colspan: COLUMNS }, parts)));
}
