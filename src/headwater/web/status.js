// The server's status: one request for all pages, and its history of the last minutes.

import { get } from "./api.js";
import { repeat } from "./live.js";
import { say } from "./element.js";

const EVERY_MS = 2_000;
const SAMPLES_MAX = 90;
const listeners = new Set();

/** One sample: the status and what happened since the sample before, per second. */
export const history = [];

let latest = null;

export function watchStatus(pulse) {
    const report = (error) => {
        if (error) {
            pulse.dataset.state = "bad";
            say(pulse, error.status === 401 ? "no key" : "error");
        }
        for (const listener of listeners) listener.problem(error);
    };
    repeat(EVERY_MS, new AbortController().signal, () => sample(pulse), report);
}

/** Call `show` with every sample until the signal ends; with the last one at once. */
export function eachStatus(signal, show, problem) {
    const listener = { show, problem };
    listeners.add(listener);
    signal.addEventListener("abort", () => listeners.delete(listener), { once: true });
    if (latest) show(latest);
}

async function sample(pulse) {
    const status = await get("/v0/status");
    const at = performance.now();
    const since = latest && latest.uptime_ms <= status.uptime_ms ? latest : null;
    latest = status;
    history.push({ at, status, speed: since ? speeds(since, status) : null });
    if (history.length > SAMPLES_MAX) history.shift();
    showPulse(pulse, status);
    for (const listener of listeners) listener.show(status);
}

function speeds(before, after) {
    const seconds = Math.max(after.now_ms - before.now_ms, 1) / 1_000;
    const grew = (pick) => Math.max(pick(after) - pick(before), 0) / seconds;
    const overShards = (pick) => (status) =>
        status.shards.reduce((sum, shard) => sum + pick(shard), 0);
    return {
        written: grew((status) => status.counters.records_appended),
        read: grew((status) => status.counters.records_read),
        copied: grew((status) => status.counters.records_forwarded),
        bytes: grew(overShards((shard) => shard.bytes_written)),
        syncs: grew(overShards((shard) => shard.fsync.count)),
    };
}

/** One number of each sample. */
export function lately(pick) {
    return history.filter((each) => each.speed).map((each) => pick(each));
}

function showPulse(pulse, status) {
    const rungs = status.pressure.rungs.filter((rung) => rung.in_force);
    const [state, text] =
        status.state === "poisoned"
            ? ["bad", "log failed"]
            : status.state === "full"
              ? ["bad", "disk full"]
              : status.unavailable.length
                ? ["bad", `not served: ${status.unavailable.map((each) => each.part).join(", ")}`]
              : rungs.length
                ? ["warn", `under pressure: ${rungs.at(-1).rung}`]
                : ["good", "healthy"];
    pulse.dataset.state = state;
    say(pulse, text);
}
