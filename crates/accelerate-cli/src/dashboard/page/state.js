// What the page shows: the runs of the folder, which of them are chosen, and how curves are drawn.
// The choice stands in the address, so that it survives a reload and can be passed on.

export const MANY = 8;

export class State extends EventTarget {
  /** All runs, the newest first. */
  runs = [];
  /** Identifiers of the chosen runs, in the order in which they were chosen. */
  chosen = [];
  tab = "curves";
  smoothing = 0;
  across = "step";
  logarithmic = false;

  /** Takes what the address says; returns whether it says which runs. */
  readAddress() {
    const said = new URLSearchParams(location.hash.slice(1));
    this.chosen = said.getAll("run");
    this.tab = ["curves", "settings", "ranks", "log"].find((tab) => tab === said.get("tab")) ?? "curves";
    this.smoothing = Math.min(0.99, Math.max(0, Number(said.get("smoothing")) || 0));
    this.across = said.get("across") === "time" ? "time" : "step";
    this.logarithmic = said.get("scale") === "log";
    return said.has("run");
  }

  /** Changes some of it and tells everybody. */
  change(what) {
    Object.assign(this, what);
    this.writeAddress();
    this.dispatchEvent(new Event("change"));
  }

  /** Takes a new list of runs. Those that are gone are not chosen any more. */
  arrived(runs) {
    const known = new Set(runs.map((run) => run.id));
    this.change({ runs, chosen: this.chosen.filter((id) => known.has(id)) });
  }

  toggle(id, on) {
    const others = this.chosen.filter((other) => other !== id);
    this.change({ chosen: on ? [...others, id] : others });
  }

  chooseNewest() {
    const readable = this.runs.filter((run) => run.metrics.length > 0);
    this.change({ chosen: readable.slice(0, MANY).map((run) => run.id) });
  }

  /** The chosen runs themselves. */
  get shown() {
    const byId = new Map(this.runs.map((run) => [run.id, run]));
    return this.chosen.map((id) => byId.get(id)).filter(Boolean);
  }

  writeAddress() {
    const said = new URLSearchParams();
    if (this.tab !== "curves") said.set("tab", this.tab);
    if (this.smoothing > 0) said.set("smoothing", this.smoothing);
    if (this.across !== "step") said.set("across", this.across);
    if (this.logarithmic) said.set("scale", "log");
    for (const id of this.chosen) said.append("run", id);
    history.replaceState(null, "", `#${said}`);
  }
}
