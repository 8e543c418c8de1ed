// Talks to the server: plain reads, and a stream that says when something has changed.

/** Reads JSON; an answer that is no success becomes an error with the server's words. */
export async function read(path, parameters = {}) {
  const answer = await fetch(address(path, parameters), { cache: "no-store" });
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(body.error ?? `the server answered ${answer.status}`);
  return body;
}

/** The address of a resource; a list becomes one parameter per item, what is undefined none. */
export function address(path, parameters = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const item of [value].flat()) {
      if (item !== undefined && item !== null) query.append(name, item);
    }
  }
  const text = query.toString();
  return text ? `${path}?${text}` : path;
}

/**
 * Calls `changed` when the folder holds something new, and `connected` with whether the server can
 * be heard. The browser connects again by itself.
 */
export function follow(changed, connected) {
  const stream = new EventSource("/api/events");
  stream.addEventListener("open", () => connected(true));
  stream.addEventListener("error", () => connected(false));
  stream.addEventListener("change", changed);
}
