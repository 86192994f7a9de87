// Relative times stay true while a page is open. web/words.py says the same on the server.

const UNITS = [[31536000, "y"], [2592000, "mo"], [86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
// The server's clock counts: a browser's may be wrong.
const loaded = performance.now();
const said = Date.parse(document.body.dataset.now || "");
export const now = () => (Number.isNaN(said) ? Date.now() : said + (performance.now() - loaded));

export function relative(at) {
  const seconds = Math.round((at - now()) / 1000);
  if (seconds === 0) return "now";
  const size = Math.abs(seconds);
  const [length, unit] = UNITS.find(([each]) => size >= each);
  const count = Math.floor(size / length);
  return seconds > 0 ? `in ${count} ${unit}` : `${count} ${unit} ago`;
}

export const absolute = (at) => `${new Date(at).toISOString().slice(0, 19).replace("T", " ")} UTC`;

/** The same time, told by a page to the millisecond and by the API more exactly. */
export const sameMoment = (one, other) => Math.abs(Date.parse(one) - Date.parse(other)) < 1;

export function refresh(root = document) {
  for (const time of root.querySelectorAll("time[data-relative]")) {
    const text = relative(Date.parse(time.dateTime));
    if (time.textContent !== text) time.textContent = text;
  }
}

setInterval(() => document.hidden || refresh(), 1000);
