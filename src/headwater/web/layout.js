// Where the parts of a graph stand: topics in columns, each to the right of where it is copied from.

const COLUMN = 250;
const ROW = 46;
const BOX_WIDTH = 170;
const BOX_HEIGHT = 28;
const MARGIN = 8;
const SWEEPS = 4;

/**
 * Places for nodes (names) and edges (`{from, to}`): `{nodes: Map name -> {x, y}, width, height}`.
 * Circles are allowed: an edge that closes one does not push its end further right.
 */
export function layout(edges) {
    const columns = inColumns(edges);
    const lines = linesOf(columns, edges);
    const nodes = new Map();
    for (const line of lines) {
        line.forEach((name, at) =>
            nodes.set(name, { x: MARGIN + columns.get(name) * COLUMN, y: MARGIN + at * ROW }),
        );
    }
    const tallest = Math.max(0, ...lines.map((line) => line.length));
    return {
        nodes,
        boxWidth: BOX_WIDTH,
        boxHeight: BOX_HEIGHT,
        width: 2 * MARGIN + (lines.length - 1) * COLUMN + BOX_WIDTH,
        height: 2 * MARGIN + (tallest - 1) * ROW + BOX_HEIGHT,
    };
}

/** The column of each node: one more than the furthest that copies into it. */
function inColumns(edges) {
    const into = new Map();
    for (const { from, to } of edges) {
        if (!into.has(from)) into.set(from, []);
        if (!into.has(to)) into.set(to, []);
        into.get(to).push(from);
    }
    const columns = new Map();
    const open = new Set();
    // A stack of our own: a chain may be longer than the browser's.
    for (const start of into.keys()) {
        const stack = [start];
        while (stack.length) {
            const name = stack.at(-1);
            open.add(name);
            const next = columns.has(name)
                ? undefined
                : into.get(name).find((each) => !columns.has(each) && !open.has(each));
            if (next !== undefined) {
                stack.push(next);
                continue;
            }
            if (!columns.has(name)) {
                const before = into
                    .get(name)
                    .filter((each) => columns.has(each))
                    .map((each) => columns.get(each));
                columns.set(name, 1 + Math.max(-1, ...before));
            }
            open.delete(name);
            stack.pop();
        }
    }
    return columns;
}

/** The nodes of each column in an order that keeps edges short: by the middle of their neighbours. */
function linesOf(columns, edges) {
    const lines = [];
    for (const [name, column] of columns) (lines[column] ??= []).push(name);
    for (const line of lines) line.sort();
    const beside = new Map([...columns.keys()].map((name) => [name, []]));
    for (const { from, to } of edges) {
        beside.get(from).push(to);
        beside.get(to).push(from);
    }
    for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
        const positions = new Map(lines.flatMap((line) => line.map((name, at) => [name, at])));
        const middle = (name) => {
            const near = beside.get(name);
            return near.reduce((sum, each) => sum + positions.get(each), 0) / Math.max(near.length, 1);
        };
        for (const line of lines) {
            const wanted = new Map(line.map((name) => [name, middle(name)]));
            line.sort(
                (one, other) => wanted.get(one) - wanted.get(other) || (one < other ? -1 : 1),
            );
        }
    }
    return lines;
}
