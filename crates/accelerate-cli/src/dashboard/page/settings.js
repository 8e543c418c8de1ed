// The panel of settings: one row for each, one column for each run, differences marked.

import { byId, csv, element, explain, save } from "./elements.js";

export class Settings {
  constructor(state) {
    this.state = state;
    byId("only-differences").addEventListener("change", () => this.show());
    byId("settings-csv").addEventListener("click", () => save("settings.csv", "text/csv", csv(this.#cells())));
  }

  show() {
    const runs = this.state.shown;
    const rows = rowsOf(runs, byId("only-differences").checked);
    explain("no-settings", reasonForNone(runs, rows));
    byId("settings-csv").disabled = rows.length === 0;
    if (rows.length === 0) {
      byId("settings").replaceChildren();
      return;
    }
    const head = ["Setting", ...runs.map((run) => run.name)].map((name) => element("th", { scope: "col" }, name));
    const body = rows.map(({ key, values, differs }) =>
      element("tr", { class: differs ? "differs" : null },
        element("th", { scope: "row" }, differs ? element("span", { title: "differs", role: "img", "aria-label": "differs:" }, "≠ ") : null, key),
        ...values.map((value) => element("td", {}, value ?? "–"))));
    const differing = rows.filter((row) => row.differs).length;
    byId("settings").replaceChildren(element("table", {},
      element("caption", {}, `${rows.length} settings of ${runs.length} runs, different: ${differing}`),
      element("thead", {}, element("tr", {}, ...head)),
      element("tbody", {}, ...body)));
  }

  #cells() {
    const runs = this.state.shown;
    const rows = rowsOf(runs, byId("only-differences").checked);
    return [["setting", ...runs.map((run) => run.name)], ...rows.map(({ key, values }) => [key, ...values])];
  }
}

function rowsOf(runs, onlyDifferences) {
  const keys = [...new Set(runs.flatMap((run) => Object.keys(run.settings)))].sort();
  return keys
    .map((key) => {
      const values = runs.map((run) => text(run.settings[key]));
      return { key, values, differs: new Set(values).size > 1 };
    })
    .filter((row) => row.differs || !onlyDifferences);
}

/** `undefined` for a setting that a run does not have. */
function text(value) {
  if (value === undefined) return undefined;
  return typeof value === "string" ? value : JSON.stringify(value);
}

function reasonForNone(runs, rows) {
  if (runs.length === 0) return "Choose runs in the list to compare their settings.";
  return rows.length === 0 ? "Nothing to show: no settings, or none that differ." : "";
}
