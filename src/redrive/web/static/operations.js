// The list of operations: those under way are kept fresh.

import { freshen } from "./fresh.js";
import { list } from "./list.js";

const EVERY_MS = 2000;

list();
let asking = false;
setInterval(async () => {
  if (asking || document.hidden || !document.querySelector("[data-active]")) return;
  asking = true;
  try {
    await freshen();
  } catch {
    // The server is away for a moment; the list is as true as it was.
  } finally {
    asking = false;
  }
}, EVERY_MS);
