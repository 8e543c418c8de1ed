// Tabs as the practices for accessible pages have them: one is in the tab order, arrows go round.

import { byId } from "./elements.js";

const NAMES = ["curves", "settings", "ranks", "log"];

/** Lets tabs change the state. */
export function listen(state) {
  NAMES.forEach((name, at) => {
    const tab = byId(`tab-${name}`);
    tab.addEventListener("click", () => state.change({ tab: name }));
    tab.addEventListener("keydown", ({ key }) => {
      const last = NAMES.length - 1;
      const next = { ArrowRight: at === last ? 0 : at + 1, ArrowLeft: at === 0 ? last : at - 1, Home: 0, End: last }[key];
      if (next === undefined) return;
      state.change({ tab: NAMES[next] });
      byId(`tab-${NAMES[next]}`).focus();
    });
  });
}

/** Shows the panel of the state. */
export function show({ tab: chosen }) {
  for (const name of NAMES) {
    const tab = byId(`tab-${name}`);
    tab.setAttribute("aria-selected", String(name === chosen));
    tab.tabIndex = name === chosen ? 0 : -1;
    byId(`panel-${name}`).hidden = name !== chosen;
  }
}
