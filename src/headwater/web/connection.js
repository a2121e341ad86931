// Is the server there? When it is not, all requests wait here, and the page asks again, more and
// more rarely, until the server answers.

import { make, refill, say } from "./element.js";

const FIRST_MS = 500;
const MOST_MS = 10_000;

let reachable = true;
let waiters = [];
let tryNow = null;

/** The server did not answer, or cannot yet: `reason` says so to people. */
export function lost(reason) {
    if (reachable) {
        reachable = false;
        tryUntilBack(reason);
    }
}

/** Resolves when the server is there: at once, most of the time. */
export function whenReachable() {
    return reachable ? Promise.resolve() : new Promise((resolve) => waiters.push(resolve));
}

async function tryUntilBack(reason) {
    let wait = FIRST_MS;
    let shown = reason;
    while (!reachable) {
        await countDown(shown, wait);
        const answer = await probe();
        reachable = answer.ready;
        shown = answer.reason ?? reason;
        // A server that is coming up is worth asking more often than one that is gone.
        wait = answer.isThere ? FIRST_MS : Math.min(wait * 1.7, MOST_MS);
    }
    hideBanner();
    const waiting = waiters;
    waiters = [];
    for (const resolve of waiting) resolve();
}

async function probe() {
    try {
        const answer = await fetch("/v0/ready", {
            cache: "no-store",
            signal: AbortSignal.timeout(5_000),
        });
        if (answer.ok) return { ready: true };
        const { error } = await answer.json();
        // The pages themselves show a log that failed: reads go on.
        if (error.code === "storage_failed") return { ready: true };
        return { ready: false, isThere: true, reason: notReady(error) };
    } catch {
        return { ready: false, isThere: false };
    }
}

export function notReady(error) {
    const progress = error.detail?.replay_progress;
    if (progress === undefined) return `The server is not ready: ${error.message}.`;
    return `The server is reading its log: ${Math.round(progress * 100)} %.`;
}

function countDown(reason, milliseconds) {
    return new Promise((resolve) => {
        const until = performance.now() + milliseconds;
        const show = () => showBanner(reason, Math.ceil((until - performance.now()) / 1_000));
        const done = () => {
            clearInterval(ticking);
            clearTimeout(over);
            tryNow = null;
            resolve();
        };
        const ticking = setInterval(show, 1_000);
        const over = setTimeout(done, milliseconds);
        tryNow = done;
        show();
    });
}

function showBanner(reason, seconds) {
    const banner = document.getElementById("banner");
    const pulse = document.getElementById("pulse");
    // What was last known of it is no longer so; the next status says how it is.
    pulse.dataset.state = "bad";
    say(pulse, "unhealthy");
    if (banner.hidden || banner.dataset.reason !== reason) {
        banner.dataset.reason = reason;
        refill(
            banner,
            make("strong", {}, reason),
            make("span", { class: "when", "aria-live": "off" }),
            make("button", { type: "button", click: () => tryNow?.() }, "Try now"),
        );
        banner.hidden = false;
    }
    banner.querySelector(".when").textContent = `Trying again in ${Math.max(seconds, 1)} s.`;
}

function hideBanner() {
    const banner = document.getElementById("banner");
    banner.hidden = true;
    delete banner.dataset.reason;
    banner.replaceChildren();
}
