// Makes elements. Text is always set as text, so that nothing in a run becomes markup.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

/** An element with attributes (`on…` are listeners, `undefined` leaves one out) and children. */
export function element(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** The same for drawings. */
export function drawing(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== undefined && child !== null));
  return node;
}

/** Says something to those who cannot see it. */
export function announce(text) {
  byId("announcement").textContent = text;
}

/** Shows why a panel is empty, or hides that if `text` is empty. */
export function explain(id, text) {
  const place = byId(id);
  place.textContent = text;
  place.hidden = !text;
}

/** Lets the browser save a text as a file. */
export function save(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

/** Rows as CSV. A cell that a spreadsheet would take for a formula is quoted as text. */
export function csv(rows) {
  const cell = (value) => {
    let text = value === null || value === undefined ? "" : String(value);
    if (typeof value === "string" && /^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text))) text = `'${text}`;
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => row.map(cell).join(",") + "\r\n").join("");
}

/** A name that any file system takes. */
export const fileName = (text, ending) => text.replace(/[^\w.-]+/g, "_") + ending;
