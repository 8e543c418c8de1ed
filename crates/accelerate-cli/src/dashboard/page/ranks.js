// The panel of ranks: where the time of a step goes on each of them.

import { read } from "./api.js";
import { byId, csv, drawing, element, explain, fileName, save } from "./elements.js";
import { bytes, duration, moment, short } from "./numbers.js";
import { offer } from "./runs.js";

const PARTS = [
  ["data_wait", "Data wait"],
  ["compute", "Compute"],
  ["communication", "Communication"],
  ["other", "Other"],
];
const COLUMNS = [
  ["rank", "Rank", (rank) => rank.rank],
  ["straggler", "Others wait", (rank) => (rank.straggler ? "straggler" : "no")],
  ["step", "Step", (rank) => rank.step],
  ["step_time", "Step time", (rank) => duration(rank.step_time)],
  ...PARTS.map(([key, name]) => [key, name, (rank) => duration(rank[key])]),
  ["samples_per_second", "Samples/s", (rank) => short(rank.samples_per_second)],
  ["tokens_per_second", "Tokens/s", (rank) => short(rank.tokens_per_second)],
  ["memory", "Memory", (rank) => bytes(rank.memory)],
  ["gradient_norm", "Gradient norm", (rank) => short(rank.gradient_norm)],
  ["loss_scale", "Loss scale", (rank) => short(rank.loss_scale)],
  ["updated", "Heard of", (rank) => moment(rank.updated)],
  ["warning", "Last warning", (rank) => rank.warning ?? ""],
];

export class Ranks {
  #seen = undefined;
  #ranks = [];

  constructor(state) {
    this.state = state;
    byId("ranks-run").addEventListener("change", () => this.show());
    byId("ranks-csv").addEventListener("click", () => {
      const rows = this.#ranks.map((rank) => COLUMNS.map(([key]) => rank[key]));
      save(fileName(`ranks-${byId("ranks-run").value}`, ".csv"), "text/csv", csv([COLUMNS.map(([key]) => key), ...rows]));
    });
  }

  async show() {
    const runs = this.state.shown;
    offer(byId("ranks-run"), runs);
    const run = runs.find((candidate) => candidate.id === byId("ranks-run").value);
    if (!run) {
      this.#seen = undefined;
      this.#draw([], "Choose a run in the list to see its ranks.");
      return;
    }
    const wanted = JSON.stringify([run.id, run.version]);
    if (this.#seen === wanted) return;
    this.#seen = wanted;
    try {
      const { ranks } = await read("/api/ranks", { run: run.id });
      if (this.#seen === wanted) this.#draw(ranks, ranks.length > 0 ? "" : "This run has no numbers for each rank.");
    } catch (error) {
      this.#seen = undefined;
      this.#draw([], `Cannot read the ranks: ${error.message}`);
    }
  }

  #draw(ranks, reason) {
    this.#ranks = ranks;
    byId("ranks-csv").disabled = ranks.length === 0;
    explain("no-ranks", reason);
    byId("ranks").replaceChildren(...(ranks.length > 0 ? [bars(ranks), table(ranks)] : []));
  }
}

/** Each rank as a bar of its parts, all to one scale. */
function bars(ranks) {
  const longest = Math.max(...ranks.map((rank) => sum(rank)), 1e-9);
  const rows = ranks.map((rank, row) => {
    let x = 70;
    const parts = PARTS.map(([key, name]) => {
      const width = ((rank[key] ?? 0) / longest) * 700;
      const part = drawing("rect", { class: `part-${key}`, x, y: row * 24 + 3, width, height: 17 }, drawing("title", {}, `${name}: ${duration(rank[key])}`));
      x += width;
      return part;
    });
    const name = drawing("text", { class: "tick", x: 62, y: row * 24 + 16, "text-anchor": "end" }, `rank ${rank.rank}`);
    const mark = rank.straggler ? [drawing("text", { class: "tick", x: x + 6, y: row * 24 + 16 }, "straggler")] : [];
    return drawing("g", {}, name, ...parts, ...mark);
  });
  const legend = PARTS.map(([key, name]) => element("li", {},
    drawing("svg", { width: 12, height: 12, "aria-hidden": "true" }, drawing("rect", { class: `part-${key}`, width: 12, height: 12 })), name));
  const late = ranks.filter((rank) => rank.straggler).map((rank) => rank.rank);
  const label = `Parts of a step on ${ranks.length} ranks; the table below has the numbers. ${late.length > 0 ? `Stragglers: ${late.join(", ")}` : "No stragglers"}`;
  return element("figure", { class: "splits" },
    element("figcaption", {}, element("h2", {}, "Time of a step")),
    element("ul", { class: "legend" }, ...legend),
    drawing("svg", { viewBox: `0 0 840 ${ranks.length * 24}`, role: "img", "aria-label": label }, ...rows));
}

const sum = (rank) => PARTS.reduce((total, [key]) => total + (rank[key] ?? 0), 0);

function table(ranks) {
  const head = COLUMNS.map(([, name]) => element("th", { scope: "col" }, name));
  const rows = ranks.map((rank) => element("tr", { class: rank.straggler ? "differs" : null },
    ...COLUMNS.map(([key, , text]) => (key === "rank"
      ? element("th", { scope: "row" }, text(rank))
      : element("td", { class: typeof rank[key] === "number" ? "number" : null }, text(rank) ?? "–")))));
  return element("div", { class: "scrolls", tabindex: 0, role: "region", "aria-label": "Numbers of each rank" },
    element("table", {},
      element("caption", {}, "Averages of the last steps"),
      element("thead", {}, element("tr", {}, ...head)),
      element("tbody", {}, ...rows)));
}
