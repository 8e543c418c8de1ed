// One chart: curves of several runs, with zoom, a cursor, a table in its place, and exports.

import { announce, element, drawing, fileName, save } from "./elements.js";
import { swatch } from "./looks.js";
import { duration, short } from "./numbers.js";
import { HEIGHT, WIDTH, draw, lines, rectangle, scalesOf, upright } from "./plot.js";
import { standalone } from "./svg_file.js";

const ROWS = 40;
let charts = 0;

export class Chart {
  /** The part of the axis that is shown; `undefined` is everything. */
  window = undefined;
  #drawn = [];
  #scales = undefined;
  #options = { across: "step", smoothing: 0, logarithmic: false };
  #cursor = undefined;
  #zoomed;

  /**
   * `zoomed` is called when another part of the axis is to be shown; `csv` gives the address of all
   * points.
   */
  constructor(metric, { zoomed, csv }) {
    charts += 1;
    const id = `chart-${charts}`;
    this.metric = metric;
    this.#zoomed = zoomed;
    this.svg = drawing("svg", {
      id, viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "application", "aria-roledescription": "chart", tabindex: 0, "aria-describedby": `${id}-readout`,
    });
    this.readout = element("p", { class: "readout", id: `${id}-readout` });
    this.rows = element("div", { class: "scrolls", tabindex: 0, role: "region", "aria-label": `Table of ${metric}` });
    this.table = element("details", { ontoggle: () => this.#fillTable() }, element("summary", {}, "Table"), this.rows);
    this.csvLink = element("button", { type: "button", onclick: () => element("a", { href: csv(this.window), download: "" }).click() }, "CSV");
    const button = (text, label, onclick) => element("button", { type: "button", "aria-label": `${label} ${metric}`, onclick }, text);
    this.csvLink.setAttribute("aria-label", `Save the points of ${metric} as CSV`);
    this.figure = element("figure", { "data-metric": metric },
      element("figcaption", {},
        element("h2", {}, metric),
        button("Whole", "Show the whole of", () => this.#zoom(undefined)),
        button("SVG", "Save as SVG the chart of", () => this.#saveSvg()),
        this.csvLink),
      this.svg, this.readout, this.table);
    this.#listen();
  }

  /** Shows curves: run, name, look, step, time and value of each. */
  show(curves, options) {
    if (options.across !== this.#options.across) [this.window, this.#cursor] = [undefined, undefined];
    this.#options = options;
    this.#drawn = lines(curves, options);
    this.#scales = scalesOf(this.#drawn, options, this.window);
    if (this.#scales) {
      draw(this.svg, this.#drawn, this.#scales, options);
    } else {
      this.svg.replaceChildren(drawing("text", { class: "tick", x: WIDTH / 2, y: HEIGHT / 2, "text-anchor": "middle" }, "nothing to draw here"));
    }
    this.svg.setAttribute("aria-label", this.#summary());
    this.#mark(this.#cursor);
    this.#fillTable();
  }

  /** Shows in the place of numbers that they could not be read. */
  fail(text) {
    this.readout.textContent = text;
  }

  #summary() {
    const last = this.#drawn.map((line) => `${line.name}: ${short(line.value.findLast((value) => value !== null))}`);
    const part = this.window ? `, from ${this.#name(this.window[0])} to ${this.#name(this.window[1])}` : "";
    return `${this.metric} of ${last.length} ${last.length === 1 ? "run" : "runs"}${part}. Last: ${last.join("; ")}`;
  }

  #name(x) {
    return this.#options.across === "time" ? duration(x) : `step ${Math.round(x)}`;
  }

  // Zoom and cursor.

  #listen() {
    let start;
    const place = (event) => {
      const box = this.svg.getBoundingClientRect();
      return this.#scales?.at(((event.clientX - box.left) / box.width) * WIDTH);
    };
    this.svg.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || !this.#scales) return;
      start = place(event);
      this.svg.setPointerCapture(event.pointerId);
    });
    this.svg.addEventListener("pointermove", (event) => {
      if (!this.#scales) return;
      const at = place(event);
      this.#mark(at);
      if (start !== undefined) this.#overlay()?.append(rectangle(start, at, this.#scales, { class: "window" }));
    });
    this.svg.addEventListener("pointerup", (event) => {
      const [from, to] = [start, place(event)];
      start = undefined;
      // A click is no zoom.
      if (from === undefined || Math.abs(this.#scales.x(from) - this.#scales.x(to)) < 4) return;
      this.#zoom([Math.min(from, to), Math.max(from, to)]);
    });
    this.svg.addEventListener("pointercancel", () => (start = undefined));
    this.svg.addEventListener("dblclick", () => this.#zoom(undefined));
    this.svg.addEventListener("keydown", (event) => this.#key(event));
  }

  #key(event) {
    if (!this.#scales || event.ctrlKey || event.altKey || event.metaKey) return;
    const { low, high } = this.#scales;
    const span = high - low;
    const at = this.#cursor ?? (low + high) / 2;
    const direction = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (direction && event.shiftKey) this.#zoom([low + (direction * span) / 4, high + (direction * span) / 4]);
    else if (direction) this.#move(Math.min(high, Math.max(low, at + (direction * span) / 50)));
    else if (event.key === "+" || event.key === "=") this.#zoom([at - span / 4, at + span / 4]);
    else if (event.key === "-") this.#zoom([at - span, at + span]);
    else if (event.key === "0" || event.key === "Escape") this.#zoom(undefined);
    else if (event.key === "Home") this.#move(low);
    else if (event.key === "End") this.#move(high);
    else return;
    event.preventDefault();
  }

  #zoom(window) {
    this.window = window;
    announce(window ? `${this.metric}: ${this.#name(window[0])} to ${this.#name(window[1])}` : `${this.metric}: everything`);
    this.#zoomed();
  }

  #move(x) {
    this.#mark(x);
    announce(this.readout.textContent);
  }

  #overlay() {
    return this.svg.querySelector(".overlay");
  }

  #mark(x) {
    this.#cursor = x;
    if (!this.#scales) return;
    this.#overlay()?.replaceChildren(...(x === undefined ? [] : [upright(x, this.#scales)]));
    const values = this.#drawn.map((line) => {
      const at = x === undefined ? line.x.length - 1 : nearest(line.x, x);
      const value = line.y[at];
      return element("span", {}, swatch(line.look), ` ${line.name} ${short(value)}  `);
    });
    this.readout.replaceChildren(x === undefined ? "Last: " : `${this.#name(x)}: `, ...values);
  }

  // What stands in the place of the drawing.

  #fillTable() {
    if (!this.table.open) return;
    const named = this.#options.across === "time" ? "Time" : "Step";
    const head = element("tr", {}, ...[named, ...this.#drawn.map((line) => line.name)].map((name) => element("th", { scope: "col" }, name)));
    const rows = this.#places().map((x) => element("tr", {},
      element("th", { scope: "row" }, this.#name(x)),
      ...this.#drawn.map((line) => element("td", { class: "number" }, short(line.y[nearest(line.x, x)])))));
    this.rows.replaceChildren(element("table", {},
      element("caption", {}, `${this.metric}, at ${rows.length} places`),
      element("thead", {}, head), element("tbody", {}, ...rows)));
  }

  /** Places of the axis, evenly spread over what is shown. */
  #places() {
    if (!this.#scales) return [];
    const { low, high } = this.#scales;
    const all = this.#drawn.flatMap((line) => line.x).filter((x) => x >= low && x <= high);
    const sorted = [...new Set(all)].sort((one, other) => one - other);
    if (sorted.length <= ROWS) return sorted;
    return Array.from({ length: ROWS }, (_, row) => sorted[Math.round((row * (sorted.length - 1)) / (ROWS - 1))]);
  }

  #saveSvg() {
    const names = this.#drawn.map((line) => ({ name: line.name, look: line.look }));
    save(fileName(this.metric, ".svg"), "image/svg+xml", standalone(this.svg, this.metric, names));
  }
}

/** Where in a sorted list the nearest value is. */
function nearest(sorted, wanted) {
  let [low, high] = [0, sorted.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low > 0 && wanted - sorted[low - 1] < sorted[low] - wanted ? low - 1 : low;
}
