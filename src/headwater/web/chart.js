// Small pictures of numbers: a line of the last minutes, bars of a histogram, a meter.

import { draw, make } from "./element.js";

const WIDTH = 120;
const HEIGHT = 28;

const SLOTS = 90;

/**
 * How a number went, oldest value first, the newest at the right edge. `top` is what reaches the
 * upper edge at least. It is for the eye only: the number stands beside it.
 */
export function sparkline(values, top = 1) {
    const most = Math.max(...values, top);
    const step = WIDTH / (SLOTS - 1);
    const left = WIDTH - (values.length - 1) * step;
    const height = (value) => (HEIGHT - 2 - (value / most) * (HEIGHT - 5)).toFixed(1);
    const line = values
        .map((value, at) => `${(left + at * step).toFixed(1)},${height(value)}`)
        .join(" ");
    const area = `${left.toFixed(1)},${HEIGHT} ${line} ${WIDTH},${HEIGHT}`;
    return draw(
        "svg",
        {
            class: "spark",
            viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
            preserveAspectRatio: "none",
            "aria-hidden": "true",
        },
        values.length > 1 && draw("polygon", { class: "area", points: area }),
        values.length > 1 && draw("polyline", { class: "line", points: line }),
    );
}

/** Bars of `{upto, count}`; the height is by the square root, so that the rare ones are seen. */
export function histogram(buckets, name) {
    const most = Math.max(...buckets.map((bucket) => bucket.count), 1);
    const bars = buckets.map((bucket) => {
        const bar = make("div", {
            class: bucket.count ? null : "none",
            title: `${name(bucket)}: ${bucket.count}`,
        });
        bar.style.height = `${Math.sqrt(bucket.count / most) * 100}%`;
        return bar;
    });
    return make("div", { class: "histogram", "aria-hidden": "true" }, bars);
}

/** A share of 0 to 1 as a filled bar. */
export function meter(share, { warn = 0.4, bad = 0.8, label }) {
    const state = share > bad ? "bad" : share > warn ? "warn" : "good";
    const bar = make("div");
    bar.style.width = `${Math.min(Math.max(share, 0), 1) * 100}%`;
    const attributes = { class: "meter", role: "meter", "data-state": state, "aria-label": label };
    return make(
        "div",
        { ...attributes, "aria-valuenow": share, "aria-valuemin": 0, "aria-valuemax": 1 },
        bar,
    );
}

/** A number with its name, and how it went lately if `values` are given. */
export function tile(name, value, { more, values, state } = {}) {
    return make(
        "div",
        { class: "tile", "data-state": state },
        make("span", { class: "name" }, name),
        make("span", { class: "value" }, value),
        more && make("span", { class: "more" }, more),
        values && sparkline(values),
    );
}
