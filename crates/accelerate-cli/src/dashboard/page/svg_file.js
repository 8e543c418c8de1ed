// A chart as a file of its own: the looks that the style sheet gives become attributes.

import { drawing } from "./elements.js";
import { HEIGHT, WIDTH } from "./plot.js";

const KEPT = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "stroke-linejoin", "font-size"];
const LINE = 18;

/** The text of an SVG file with a title and the names of the curves below the chart. */
export function standalone(svg, title, curves) {
  const copy = svg.cloneNode(true);
  dress(svg, copy);
  const height = HEIGHT + LINE * (curves.length + 2);
  const file = drawing("svg", {
    viewBox: `0 0 ${WIDTH} ${height}`, width: WIDTH, height, "font-family": "sans-serif",
  });
  const ink = getComputedStyle(document.body).color;
  const sample = document.createElement("i");
  sample.hidden = true;
  document.body.append(sample);
  const resolved = (colour) => {
    sample.style.color = colour;
    return getComputedStyle(sample).color;
  };
  file.append(
    drawing("title", {}, title),
    drawing("rect", { width: WIDTH, height, fill: resolved("var(--surface)") }),
    drawing("text", { x: 14, y: LINE, fill: ink, "font-size": 14, "font-weight": "bold" }, title),
    drawing("g", { transform: `translate(0 ${LINE})` }, ...copy.childNodes),
    ...curves.map(({ name, look }, row) => {
      const y = HEIGHT + LINE * (row + 2);
      return drawing("g", {},
        drawing("line", { x1: 14, x2: 44, y1: y - 4, y2: y - 4, stroke: resolved(look.colour), "stroke-width": 2, "stroke-dasharray": look.dash || null }),
        drawing("text", { x: 52, y, fill: ink, "font-size": 12 }, name));
    }),
  );
  sample.remove();
  return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(file)}\n`;
}

function dress(shown, copy) {
  // The cursor is no part of the file. It lies above all else: nothing behind it moves.
  if (shown.classList.contains("overlay")) {
    copy.remove();
    return;
  }
  if (!["defs", "clipPath", "rect"].includes(shown.localName)) {
    const style = getComputedStyle(shown);
    for (const name of KEPT) {
      const value = style.getPropertyValue(name);
      if (value) copy.setAttribute(name, value);
    }
    copy.removeAttribute("style");
    copy.removeAttribute("class");
  }
  const copies = [...copy.children];
  [...shown.children].forEach((child, at) => dress(child, copies[at]));
}
