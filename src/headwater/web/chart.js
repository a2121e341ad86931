// Small pictures of numbers: a line of the last minutes, bars of a histogram, a meter.

import { draw, make } from "./element.js";

const WIDTH = 120;
const HEIGHT = 28;

/** How a number went, oldest value first. It is for the eye only: the number stands beside it. */
export function sparkline(values) {
  const most = Math.max(...values, 1e-9);
  const step = WIDTH / Math.max(values.length - 1, 1);
  const points = values.map((value, at) => `${(at * step).toFixed(1)},${(HEIGHT - 2 - (value / most) * (HEIGHT - 5)).toFixed(1)}`);
  const line = points.join(" ");
  return draw(
    "svg",
    { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    points.length > 1 && draw("polygon", { class: "area", points: `0,${HEIGHT} ${line} ${WIDTH},${HEIGHT}` }),
    points.length > 1 && draw("polyline", { class: "line", points: line }),
  );
}

/** Bars of `{upto, count}`; the height is by the square root, so that the rare ones are seen. */
export function histogram(buckets, name) {
  const most = Math.max(...buckets.map((bucket) => bucket.count), 1);
  const bars = buckets.map((bucket) => {
    const bar = make("div", { class: bucket.count ? null : "none", title: `${name(bucket)}: ${bucket.count}` });
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
  return make("div", { ...attributes, "aria-valuenow": share, "aria-valuemin": 0, "aria-valuemax": 1 }, bar);
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
