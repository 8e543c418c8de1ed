// The panel of the log: what a run said, and why it failed.

import { read } from "./api.js";
import { byId, element, explain } from "./elements.js";
import { offer, stateOf } from "./runs.js";

export class Log {
  #seen = undefined;

  constructor(state) {
    this.state = state;
    byId("log-run").addEventListener("change", () => this.show());
  }

  async show() {
    const runs = this.state.shown;
    const select = byId("log-run");
    const first = select.options.length === 0;
    offer(select, runs);
    // What failed is what one looks for.
    const failed = runs.find((run) => ["failed", "crashed"].includes(run.state));
    if (first && failed) select.value = failed.id;
    const run = runs.find((candidate) => candidate.id === select.value);
    if (!run) {
      this.#seen = undefined;
      this.#draw(undefined, [], "Choose a run in the list to see its log.");
      return;
    }
    const wanted = JSON.stringify([run.id, run.version, run.state]);
    if (this.#seen === wanted) return;
    this.#seen = wanted;
    try {
      const { failure, lines, cut } = await read("/api/log", { run: run.id });
      if (this.#seen !== wanted) return;
      const shown = cut ? ["… older lines are in the folder of the run", ...lines] : lines;
      this.#draw(failure, shown, lines.length > 0 ? "" : `Nothing was written to the log. The run: ${stateOf(run)}.`);
    } catch (error) {
      this.#seen = undefined;
      this.#draw(undefined, [], `Cannot read the log: ${error.message}`);
    }
  }

  #draw(failure, lines, reason) {
    const place = byId("failure");
    place.replaceChildren(...(failure ? [element("p", { class: "failure" }, failure)] : []));
    const log = byId("log");
    log.hidden = lines.length === 0;
    log.textContent = lines.join("\n");
    if (byId("follow-log").checked) log.scrollTop = log.scrollHeight;
    explain("no-log", reason);
  }
}
