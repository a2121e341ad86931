// Numbers and times as people read them.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const SIZES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const SPANS = [
    ["d", 86_400_000],
    ["h", 3_600_000],
    ["min", 60_000],
    ["s", 1_000],
];

export function count(number) {
    return whole.format(number);
}

/** `several(1, "router")` is "1 router"; of every other number there are routers. */
export function several(number, word, shown = count) {
    return `${shown(number)} ${word}${number === 1 ? "" : "s"}`;
}

/** Beyond a million the last digits say nothing any more. */
export function about(number) {
    return Math.abs(number) < 1_000_000 ? whole.format(number) : short.format(number);
}

export function size(bytes) {
    let step = 0;
    while (bytes >= 1024 && step < SIZES.length - 1) {
        bytes /= 1024;
        step += 1;
    }
    return `${step && bytes < 100 ? bytes.toFixed(1) : whole.format(bytes)} ${SIZES[step]}`;
}

export function rate(perSecond) {
    if (perSecond > 0 && perSecond < 10) return `${perSecond.toFixed(1)}/s`;
    return `${about(perSecond)}/s`;
}

export function milliseconds(number) {
    if (number >= 10_000) return span(number);
    return `${number >= 100 ? whole.format(number) : number.toFixed(number >= 10 ? 1 : 2)} ms`;
}

/** A stretch of time in its two largest units. */
export function span(ms) {
    const parts = [];
    for (const [name, length] of SPANS) {
        const times = Math.floor(ms / length);
        if (times || (name === "s" && !parts.length)) parts.push(`${times} ${name}`);
        ms -= times * length;
        if (parts.length === 2) break;
    }
    return parts.join(" ");
}

/** How long ago, by this browser's clock; a moment that is to come counts as now. */
export function ago(ms) {
    const passed = Date.now() - ms;
    return passed < 1_000 ? "now" : `${span(passed).split(" ").slice(0, 2).join(" ")} ago`;
}

export function clock(ms) {
    const at = new Date(ms);
    const two = (number, length = 2) => String(number).padStart(length, "0");
    const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
    const time = [at.getHours(), at.getMinutes(), at.getSeconds()]
        .map((part) => two(part))
        .join(":");
    return `${day} ${time}.${two(at.getMilliseconds(), 3)}`;
}

export function percent(share) {
    return `${Math.round(share * 100)} %`;
}
