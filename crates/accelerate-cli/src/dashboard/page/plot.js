// Draws curves into an SVG: axes, ticks, lines with gaps, the raw curve faint behind a smoothed one.

import { drawing } from "./elements.js";
import { duration, exact, logarithmicTicks, smooth, ticks } from "./numbers.js";

export const WIDTH = 640;
export const HEIGHT = 300;
const EDGE = { left: 72, right: 16, top: 12, bottom: 32 };

/** Where values lie on the paper. */
export class Scales {
  constructor([low, high], [bottom, top], logarithmic) {
    Object.assign(this, { low, high, bottom, top, logarithmic });
  }

  x(value) {
    const width = WIDTH - EDGE.left - EDGE.right;
    return EDGE.left + ((value - this.low) / (this.high - this.low)) * width;
  }

  /** The value at a place on the paper. */
  at(x) {
    const width = WIDTH - EDGE.left - EDGE.right;
    const share = Math.min(1, Math.max(0, (x - EDGE.left) / width));
    return this.low + share * (this.high - this.low);
  }

  y(value) {
    const on = this.logarithmic ? Math.log10 : Number;
    const share = (on(value) - on(this.bottom)) / (on(this.top) - on(this.bottom));
    return HEIGHT - EDGE.bottom - share * (HEIGHT - EDGE.top - EDGE.bottom);
  }
}

/** The lines of the curves: what is shown of each, and what lies faint behind it. */
export function lines(curves, { across, smoothing, logarithmic }) {
  const drawable = (value) => (value === null || (logarithmic && !(value > 0)) ? null : value);
  return curves.map((curve) => {
    const raw = curve.value.map(drawable);
    return { ...curve, x: curve[across], raw, y: smooth(raw, smoothing) };
  });
}

/** The scales that hold all lines; `undefined` if there is nothing to hold. */
export function scalesOf(drawn, { logarithmic }, window) {
  const [low, high] = window ?? extent(drawn.flatMap((line) => ends(line.x)));
  const seen = drawn.flatMap((line) => extentWithin(line, low, high));
  const [bottom, top] = extent(seen);
  if (!Number.isFinite(low) || !Number.isFinite(bottom)) return undefined;
  return new Scales(opened(low, high, false), roomy(...opened(bottom, top, logarithmic), logarithmic), logarithmic);
}

const ends = (values) => (values.length > 0 ? [values[0], values.at(-1)] : []);

function extent(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}

function extentWithin(line, low, high) {
  const inside = line.y.filter((value, at) => value !== null && line.x[at] >= low && line.x[at] <= high);
  return inside.length > 0 ? extent(inside) : [];
}

/** A range that is more than one point. */
function opened(low, high, logarithmic) {
  if (high > low) return [low, high];
  if (logarithmic) return [low / 2, high * 2];
  const room = Math.abs(low) / 10 || 1;
  return [low - room, high + room];
}

function roomy(bottom, top, logarithmic) {
  const room = logarithmic ? 0 : (top - bottom) * 0.05;
  return [bottom - room, top + room];
}

/** Fills an SVG anew. */
export function draw(svg, drawn, scales, options) {
  const clip = `clip-${svg.id}`;
  const paper = drawing("g", { "clip-path": `url(#${clip})` });
  for (const line of drawn) {
    if (options.smoothing > 0) paper.append(path(line, line.raw, scales, "curve raw"));
    paper.append(path(line, line.y, scales, "curve"));
  }
  svg.replaceChildren(
    drawing("defs", {}, drawing("clipPath", { id: clip }, rectangle(scales.low, scales.high, scales))),
    axes(scales, options),
    paper,
    drawing("g", { class: "overlay" }),
  );
}

/** A rectangle over the whole height. */
export function rectangle(from, to, scales, attributes = {}) {
  const [left, right] = [scales.x(Math.min(from, to)), scales.x(Math.max(from, to))];
  const height = HEIGHT - EDGE.top - EDGE.bottom;
  return drawing("rect", { x: left, y: EDGE.top, width: right - left, height, ...attributes });
}

/** A line over the whole height. */
export function upright(value, scales) {
  const x = scales.x(value);
  return drawing("line", { class: "cursor", x1: x, x2: x, y1: EDGE.top, y2: HEIGHT - EDGE.bottom });
}

function path(line, values, scales, kind) {
  let commands = "";
  let open = false;
  let points = 0;
  values.forEach((value, at) => {
    if (value === null) {
      open = false;
      return;
    }
    commands += `${open ? "L" : "M"}${scales.x(line.x[at]).toFixed(1)} ${scales.y(value).toFixed(1)}`;
    // A point without neighbours would not be seen.
    if (!open) commands += "h0.01";
    open = true;
    points += 1;
  });
  const node = drawing("path", {
    class: kind,
    d: commands || null,
    "stroke-dasharray": line.look.dash || null,
    "stroke-linecap": points === 1 ? "round" : null,
  });
  node.style.stroke = line.look.colour;
  if (points === 1) node.style.strokeWidth = "6";
  return node;
}

function axes(scales, { across }) {
  const group = drawing("g");
  const base = HEIGHT - EDGE.bottom;
  const nameX = across === "time" ? duration : exact;
  for (const tick of ticks(scales.low, scales.high, 6)) {
    const x = scales.x(tick);
    group.append(
      drawing("line", { class: "axis", x1: x, x2: x, y1: base, y2: base + 4 }),
      drawing("text", { class: "tick", x, y: base + 19, "text-anchor": "middle" }, nameX(tick)),
    );
  }
  const upwards = scales.logarithmic
    ? logarithmicTicks(scales.bottom, scales.top, 6)
    : ticks(scales.bottom, scales.top, 6);
  for (const tick of upwards) {
    const y = scales.y(tick);
    group.append(
      drawing("line", { class: "axis", x1: EDGE.left, x2: WIDTH - EDGE.right, y1: y, y2: y }),
      drawing("text", { class: "tick", x: EDGE.left - 6, y: y + 5, "text-anchor": "end" }, exact(tick)),
    );
  }
  return group;
}
