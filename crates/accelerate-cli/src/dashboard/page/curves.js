// The panel of curves: one chart for each metric, read when it comes into sight.

import { address, read } from "./api.js";
import { Chart } from "./chart.js";
import { byId, explain } from "./elements.js";

/** As many points of each curve as a wide chart can show. */
const POINTS = 800;

export class Curves {
  #charts = new Map();
  #sight = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      const held = this.#charts.get(target.dataset.metric);
      if (!held) continue;
      held.seen = isIntersecting;
      if (isIntersecting) this.#refresh(held);
    }
  }, { rootMargin: "200px" });

  constructor(state, looks) {
    this.state = state;
    this.looks = looks;
    byId("find-metrics").addEventListener("input", () => this.show());
    byId("smoothing").addEventListener("input", (event) => state.change({ smoothing: Number(event.target.value) }));
    byId("across").addEventListener("change", (event) => state.change({ across: event.target.value }));
    byId("logarithmic").addEventListener("change", (event) => state.change({ logarithmic: event.target.checked }));
    byId("curve-options").addEventListener("submit", (event) => event.preventDefault());
  }

  /** Brings charts and options in line with the state. */
  show() {
    const { state } = this;
    byId("smoothing").value = state.smoothing;
    byId("smoothing-value").textContent = state.smoothing;
    byId("across").value = state.across;
    byId("logarithmic").checked = state.logarithmic;
    const wanted = byId("find-metrics").value.trim().toLowerCase();
    const all = new Set(state.shown.flatMap((run) => run.metrics));
    const metrics = [...all].filter((metric) => metric.toLowerCase().includes(wanted)).sort();
    for (const [metric, held] of this.#charts) if (!metrics.includes(metric)) this.#remove(metric, held);
    metrics.forEach((metric, at) => this.#place(metric, at));
    explain("no-curves", reasonForNone(state, all, metrics));
    for (const held of this.#charts.values()) if (held.seen) this.#refresh(held);
  }

  #place(metric, at) {
    let held = this.#charts.get(metric);
    if (!held) {
      const chart = new Chart(metric, {
        zoomed: () => this.#refresh(this.#charts.get(metric)),
        csv: (window) => this.#csv(metric, window),
      });
      held = { chart, seen: false, curves: new Map(), busy: false };
      this.#charts.set(metric, held);
      this.#sight.observe(chart.figure);
    }
    const list = byId("charts");
    if (list.children[at] !== held.chart.figure) list.insertBefore(held.chart.figure, list.children[at] ?? null);
  }

  #remove(metric, held) {
    this.#sight.unobserve(held.chart.figure);
    held.chart.figure.remove();
    this.#charts.delete(metric);
  }

  /** Draws what is known and reads what is missing or old; one reading at a time. */
  async #refresh(held) {
    const { chart, curves } = held;
    this.#draw(held);
    if (held.busy) return;
    const runs = this.state.shown.filter((run) => run.metrics.includes(chart.metric));
    const part = JSON.stringify([this.state.across, chart.window]);
    const old = runs.filter((run) => curves.get(run.id)?.version !== run.version || curves.get(run.id)?.part !== part);
    if (old.length === 0) return;
    held.busy = true;
    try {
      const answer = await read("/api/curves", this.#query(chart.metric, old, chart.window, { points: POINTS }));
      answer.curves.forEach((curve, at) => curves.set(old[at].id, { ...curve, version: old[at].version, part }));
    } catch (error) {
      chart.fail(`Cannot read the points: ${error.message}`);
      // The next change tries again.
      held.busy = false;
      return;
    }
    held.busy = false;
    // What was chosen may have changed meanwhile.
    this.#refresh(held);
  }

  #draw({ chart, curves }) {
    const shown = this.state.shown
      .filter((run) => curves.has(run.id) && run.metrics.includes(chart.metric))
      .map((run) => ({ ...curves.get(run.id), run: run.id, name: run.name, look: this.looks.of(run.id) }));
    if (shown.length > 0) chart.show(shown, this.state);
  }

  #query(metric, runs, window, more = {}) {
    const [from, to] = window ?? [];
    return { metric, run: runs.map((run) => run.id), across: this.state.across, from, to, ...more };
  }

  #csv(metric, window) {
    const runs = this.state.shown.filter((run) => run.metrics.includes(metric));
    return address("/api/curves.csv", this.#query(metric, runs, window));
  }
}

function reasonForNone(state, all, metrics) {
  if (state.runs.length === 0) return "";
  if (state.chosen.length === 0) return "Choose runs in the list to see their curves.";
  if (all.size === 0) return "The chosen runs have logged no numbers.";
  return metrics.length === 0 ? "No metric fits." : "";
}
