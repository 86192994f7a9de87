// The dashboard stays true: when something has happened, what changed is drawn anew, not more often than every few seconds.

import { freshen } from "./fresh.js";

const AT_MOST_EVERY_MS = 4000;
const AT_LEAST_EVERY_MS = 60_000; // time passes even where nothing happens
let drawnAt = performance.now();
let waiting = null;
let tick = null;

async function draw() {
  waiting = null;
  drawnAt = performance.now();
  try {
    await freshen();
  } catch {
    // What is shown is as true as it was; the mark says that it is not live.
  }
}

function soon() {
  waiting ??= setTimeout(draw, Math.max(0, drawnAt + AT_MOST_EVERY_MS - performance.now()));
}

document.addEventListener("counts", ({ detail }) => {
  if (tick !== null && tick !== detail.tick) soon();
  tick = detail.tick;
});
setInterval(() => {
  if (!document.hidden && performance.now() - drawnAt > AT_LEAST_EVERY_MS) draw();
}, 5000);
document.addEventListener("visibilitychange", () => document.hidden || soon());
