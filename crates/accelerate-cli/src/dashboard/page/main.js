// The page: reads the list of runs, lets panels show it, and reads it again when something changed.

import { follow, read } from "./api.js";
import { Curves } from "./curves.js";
import { announce, byId } from "./elements.js";
import { Log } from "./log.js";
import { Looks } from "./looks.js";
import { Ranks } from "./ranks.js";
import { RunList } from "./runs.js";
import { Settings } from "./settings.js";
import { State } from "./state.js";
import * as tabs from "./tabs.js";

/** No more than one reading in this time, however fast a run logs. */
const PAUSE = 500;

const state = new State();
const looks = new Looks();
const list = new RunList(state, looks);
const panels = { curves: new Curves(state, looks), settings: new Settings(state), ranks: new Ranks(state), log: new Log(state) };
let chooseOnArrival = !state.readAddress();
let reading = false;
let again = false;

function show() {
  looks.keep(state.chosen);
  // In the order of choice, so that a run that comes later changes no colour.
  state.chosen.forEach((id) => looks.of(id));
  tabs.show(state);
  list.show();
  panels[state.tab].show();
}

async function refresh() {
  if (reading) {
    again = true;
    return;
  }
  reading = true;
  try {
    const { folder, runs } = await read("/api/runs");
    byId("folder").textContent = folder;
    tell(state.runs, runs);
    state.arrived(runs);
    if (chooseOnArrival && runs.some((run) => run.metrics.length > 0)) {
      chooseOnArrival = false;
      state.chooseNewest();
    }
  } catch (error) {
    connected(false, error.message);
  }
  setTimeout(() => {
    reading = false;
    if (again) {
      again = false;
      refresh();
    }
  }, PAUSE);
}

/** Says which runs came or ended since the last reading. */
function tell(before, now) {
  if (before.length === 0) return;
  const known = new Map(before.map((run) => [run.id, run.state]));
  const news = now.flatMap((run) => {
    if (!known.has(run.id)) return [`new run ${run.name}`];
    return known.get(run.id) === run.state ? [] : [`${run.name}: ${run.state}`];
  });
  if (news.length > 0) announce(news.join("; "));
}

function connected(is, reason = "trying again") {
  const place = byId("connection");
  const text = is ? "Live" : `No connection to the server: ${reason}`;
  if (place.textContent !== text) place.textContent = text;
  place.classList.toggle("lost", !is);
}

state.addEventListener("change", show);
window.addEventListener("hashchange", () => {
  state.readAddress();
  state.arrived(state.runs);
});
tabs.listen(state);
follow(refresh, (is) => {
  connected(is);
  if (is) refresh();
});
show();
refresh();
