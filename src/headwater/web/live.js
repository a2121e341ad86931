// Repeat something as long as the page is visible.

import { LostError } from "./api.js";
import { whenReachable } from "./connection.js";

/** A factor on the time between refreshes; tests shorten it. */
export const pace = { factor: 1 };

/** Wait so many times longer than a request took before the next one. */
const PATIENCE = 10;

/**
 * Do `work` now and every so often until the page is left; what takes the server long is requested
 * more rarely. `report` gets the error, or null.
 */
export async function repeat(milliseconds, signal, work, report) {
    while (!signal.aborted) {
        await whenVisible();
        await whenReachable();
        if (signal.aborted) return;
        const begun = performance.now();
        try {
            await work();
            report(null);
        } catch (error) {
            if (signal.aborted) return;
            if (!(error instanceof LostError)) report(error);
        }
        const spent = performance.now() - begun;
        await pause(Math.max(milliseconds * pace.factor, spent * PATIENCE), signal);
    }
}

export function pause(milliseconds, signal) {
    return new Promise((resolve) => {
        const done = () => {
            clearTimeout(timer);
            signal?.removeEventListener("abort", done);
            resolve();
        };
        const timer = setTimeout(done, milliseconds);
        signal?.addEventListener("abort", done);
    });
}

function whenVisible() {
    if (!document.hidden) return Promise.resolve();
    return new Promise((resolve) =>
        document.addEventListener("visibilitychange", resolve, { once: true }),
    );
}

/** Call `work` when nothing was typed for a moment. */
export function debounced(work, milliseconds = 250) {
    let timer = null;
    return () => {
        clearTimeout(timer);
        timer = setTimeout(work, milliseconds);
    };
}

const WINDOW_MS = 10_000;

/** How fast numbers grow, by key, over the last ten seconds. */
export class Rates {
    #seen = new Map();

    /** Per second; null until there are two values. A number that went back began anew. */
    observe(key, value, now = performance.now()) {
        let values = this.#seen.get(key);
        if (!values || values.at(-1)[1] > value) this.#seen.set(key, (values = []));
        values.push([now, value]);
        while (values.length > 2 && now - values[0][0] > WINDOW_MS) values.shift();
        const [since, first] = values[0];
        return values.length > 1 && now > since ? ((value - first) * 1_000) / (now - since) : null;
    }
}
