// How the curves of each run look: six colours, then the same colours with other dashes.

import { drawing } from "./elements.js";

const COLOURS = 6;
const DASHES = ["", "7 3", "2 3", "9 3 2 3"];

/** Keeps the look of a run for as long as the page lives, whatever else is chosen. */
export class Looks {
  #numbers = new Map();

  /** The look of a run. The first free one goes to a run that has none. */
  of(id) {
    if (!this.#numbers.has(id)) this.#numbers.set(id, this.#free());
    const number = this.#numbers.get(id);
    return {
      colour: `var(--curve-${number % COLOURS})`,
      dash: DASHES[Math.floor(number / COLOURS) % DASHES.length],
    };
  }

  /** Frees the looks of runs that are not shown any more. */
  keep(ids) {
    const kept = new Set(ids);
    for (const id of [...this.#numbers.keys()]) if (!kept.has(id)) this.#numbers.delete(id);
  }

  #free() {
    const taken = new Set(this.#numbers.values());
    let number = 0;
    while (taken.has(number)) number += 1;
    return number;
  }
}

/** A short piece of the curve of a run, for lists. */
export function swatch(look) {
  const line = drawing("line", { x1: 0, y1: 6, x2: 26, y2: 6, "stroke-width": 3, "stroke-dasharray": look?.dash });
  line.style.stroke = look?.colour ?? "transparent";
  return drawing("svg", { class: "swatch", viewBox: "0 0 26 12", "aria-hidden": "true" }, line);
}
