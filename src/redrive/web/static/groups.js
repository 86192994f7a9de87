// Groups of dead letters: an action on one is an operation, followed in a bar.

import { list } from "./list.js";

const groups = list();

document.addEventListener("acted", (event) => {
  if (!event.target.matches("[data-group]")) return;
  event.preventDefault();
  groups.follow(event.detail.answer);
});
