// Doing something again and again, as long as somebody looks.

import { LostError } from "./api.js";
import { whenReachable } from "./connection.js";

/** Do `work` now and every so often until the page is left. `tell` hears what went wrong, or null. */
export async function repeat(milliseconds, signal, work, tell) {
    while (!signal.aborted) {
        await whenVisible();
        await whenReachable();
        if (signal.aborted) return;
        try {
            await work();
            tell(null);
        } catch (error) {
            if (signal.aborted) return;
            if (!(error instanceof LostError)) tell(error);
        }
        await pause(milliseconds, signal);
    }
}

export function pause(milliseconds, signal) {
    return new Promise((resolve) => {
        const timer = setTimeout(resolve, milliseconds);
        signal?.addEventListener(
            "abort",
            () => {
                clearTimeout(timer);
                resolve();
            },
            { once: true },
        );
    });
}

function whenVisible() {
    if (!document.hidden) return Promise.resolve();
    return new Promise((resolve) =>
        document.addEventListener("visibilitychange", resolve, { once: true }),
    );
}

/** Call `work` when nothing was typed for a moment. */
export function settled(work, milliseconds = 250) {
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
