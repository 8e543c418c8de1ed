// The list of runs, from which some are chosen.

import { byId, element, explain } from "./elements.js";
import { swatch } from "./looks.js";
import { moment } from "./numbers.js";

/** Shows the runs of the state and changes what is chosen. */
export class RunList {
  #items = new Map();

  constructor(state, looks) {
    this.state = state;
    this.looks = looks;
    byId("find-runs").addEventListener("input", () => this.show());
    byId("select-newest").addEventListener("click", () => state.chooseNewest());
    byId("select-none").addEventListener("click", () => state.change({ chosen: [] }));
  }

  show() {
    const wanted = byId("find-runs").value.trim().toLowerCase();
    const found = this.state.runs.filter((run) => fits(run, wanted));
    const items = found.map((run) => this.#item(run));
    // An item that stays keeps the focus that it has.
    const list = byId("runs");
    const kept = new Set(items);
    for (const child of [...list.children]) if (!kept.has(child)) child.remove();
    items.forEach((item, at) => {
      if (list.children[at] !== item) list.insertBefore(item, list.children[at] ?? null);
    });
    byId("selection-count").textContent = `${this.state.chosen.length} of ${this.state.runs.length} chosen`;
    explain("no-runs", reasonForNone(this.state.runs, found));
  }

  #item(run) {
    const chosen = this.state.chosen.includes(run.id);
    const look = chosen ? this.looks.of(run.id) : undefined;
    const text = JSON.stringify([run.name, run.version, run.state, chosen, look]);
    const known = this.#items.get(run.id);
    if (known?.text === text) return known.item;
    const item = known?.item ?? element("li", { "data-run": run.id });
    const box = known?.box ?? element("input", { type: "checkbox", onchange: () => this.state.toggle(run.id, box.checked) });
    box.checked = chosen;
    const facts = [stateOf(run), run.step === null ? "" : `step ${run.step}`, moment(run.started)].filter(Boolean);
    const label = known?.label ?? element("label");
    // Moving the box would take the focus from it.
    [...label.children].filter((child) => child !== box).forEach((child) => child.remove());
    if (!box.isConnected) label.append(box);
    label.append(
      swatch(look),
      element("span", { class: "name" }, run.name),
      element("span", { class: `facts state-${run.state}` }, facts.join(" · ")),
      ...(run.problem ? [element("span", { class: "facts problem" }, run.problem)] : []),
    );
    if (!known) item.append(label);
    this.#items.set(run.id, { text, item, box, label });
    return item;
  }
}

function fits(run, wanted) {
  if (!wanted) return true;
  const settings = Object.entries(run.settings).map(([key, value]) => `${key}=${value}`);
  return [run.name, run.project, stateOf(run), ...settings].some((text) => String(text ?? "").toLowerCase().includes(wanted));
}

function reasonForNone(runs, found) {
  if (runs.length === 0) {
    return "No runs yet. A program that logs with the tracker “local” writes its runs below this folder; they appear here by themselves.";
  }
  return found.length === 0 ? "No run fits." : "";
}

/** The state of a run in words. */
export function stateOf(run) {
  return {
    running: "running",
    finished: "finished",
    failed: "failed",
    crashed: "ended without a word",
    unknown: "perhaps running",
    unreadable: "cannot be read",
  }[run.state] ?? run.state;
}

/** Fills a choice with the chosen runs, and keeps what was chosen there. */
export function offer(select, runs) {
  const before = select.value;
  const same = runs.length === select.options.length && runs.every((run, at) => select.options[at].value === run.id);
  if (same) return;
  select.replaceChildren(...runs.map((run) => element("option", { value: run.id }, run.name)));
  if (runs.some((run) => run.id === before)) select.value = before;
}
