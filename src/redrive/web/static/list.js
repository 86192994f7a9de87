// Lists of tasks: selection by click, range, page and filter; the keyboard's place; bulk actions. Keys act only while the
// focus is on the list: what is typed anywhere else never does anything to a row.

import { busy, isBusy, PACES } from "./acts.js";
import { call } from "./api.js";
import { ask, element } from "./dialog.js";
import { putInPlace, thisPageNow } from "./fresh.js";
import { filter } from "./filters.js";
import { bind, isOnList } from "./keys.js";
import { latestCounts } from "./live.js";
import { watch } from "./operation.js";
import { refresh as refreshTimes } from "./times.js";
import { toast } from "./toast.js";

const ASK_FROM = 100; // more than a person has seen one by one
class List {
  constructor(section) {
    this.section = section;
    this.isAll = false;
    this.lastTicked = null;
    this.inProgress = new Set(); // what a running bulk retry was begun with
    this.find();
    section.addEventListener("click", (event) => this.clicked(event));
    section.addEventListener("focusin", (event) => this.entered(event.target.closest("tbody tr")));
    this.entered(document.activeElement?.closest("tbody tr")); // the focus came before this script
    section.addEventListener("leaving", (event) => this.leaving(event.target));
  }

  find() {
    this.table = this.section.querySelector("table[data-list]");
    this.bulk = this.section.querySelector("[data-bulk]");
    this.bar = this.bulk?.querySelector("[data-selection]");
    this.rows[0]?.setAttribute("tabindex", "0"); // the way in by Tab
  }

  get rows() {
    return this.table ? [...this.table.tBodies[0].rows] : [];
  }

  get cursor() {
    return this.table?.querySelector("tr.cursor") || null;
  }

  get ticked() {
    return this.rows.filter((row) => row.querySelector("[data-tick]")?.checked);
  }

  get total() {
    return this.bulk.dataset.total === "" ? null : Number(this.bulk.dataset.total);
  }

  clicked(event) {
    const target = event.target;
    if (target.matches("[data-tick]")) {
      if (event.shiftKey && this.lastTicked?.isConnected) this.tickRange(this.lastTicked, target.closest("tr"), target.checked);
      this.lastTicked = target.closest("tr");
      this.isAll = false;
      this.show();
    } else if (target.matches("[data-page]")) {
      for (const row of this.rows) row.querySelector("[data-tick]").checked = target.checked;
      this.isAll = false;
      this.show();
    } else if (target.closest("[data-all]")) {
      this.isAll = true;
      this.show();
    } else if (target.closest("[data-clear]")) {
      this.clear();
    } else if (target.closest("[data-bulk-path]")) {
      this.begin(target.closest("[data-bulk-path]"));
    } else if (target.closest("[data-edit-term]")) {
      editTerm(target.closest("[data-edit-term]"));
    }
  }

  tickRange(from, to, checked) {
    const rows = this.rows;
    const [first, last] = [rows.indexOf(from), rows.indexOf(to)].sort((a, b) => a - b);
    for (const row of rows.slice(Math.max(first, 0), last + 1)) row.querySelector("[data-tick]").checked = checked;
  }

  clear() {
    for (const row of this.rows) {
      const tick = row.querySelector("[data-tick]");
      if (tick) tick.checked = false;
    }
    this.isAll = false;
    this.show();
  }

  /** The bar and the rows say what is selected. */
  show() {
    const rows = this.rows;
    const ticked = this.ticked;
    for (const row of rows) row.classList.toggle("selected", this.isAll || ticked.includes(row));
    const page = this.table?.querySelector("[data-page]");
    if (page) {
      page.checked = ticked.length > 0 && ticked.length === rows.length;
      page.indeterminate = ticked.length > 0 && ticked.length < rows.length;
    }
    if (!this.bar) return;
    this.bar.hidden = ticked.length === 0;
    this.bar.querySelector("[data-selected]").textContent = this.isAll
      ? this.total === null ? "All that match selected" : `All ${this.total.toLocaleString("en-US")} selected`
      : `${ticked.length.toLocaleString("en-US")} selected`;
    const all = this.bar.querySelector("[data-all]");
    const hasMore = this.total === null || this.total > rows.length;
    all.hidden = this.isAll || !hasMore || ticked.length !== rows.length;
    all.textContent = this.total === null ? "Select all that match" : `Select all ${this.total.toLocaleString("en-US")} that match`;
  }

  move(step) {
    const rows = this.rows;
    if (!rows.length) return;
    const at = rows.indexOf(this.cursor);
    this.place(rows[at < 0 ? 0 : Math.min(Math.max(at + step, 0), rows.length - 1)]);
  }

  place(row) {
    if (!row) return this.cursor?.classList.remove("cursor");
    row.focus({ preventScroll: true });
    row.scrollIntoView({ block: "nearest" });
  }

  /** The row that has the focus is the one that keys act on, and where Tab comes back to. */
  entered(row) {
    if (!row || !this.rows.includes(row)) return;
    this.cursor?.classList.remove("cursor");
    for (const each of this.rows) each.setAttribute("tabindex", each === row ? "0" : "-1");
    row.classList.add("cursor");
  }

  leaving(row) {
    const next = row.nextElementSibling || row.previousElementSibling;
    if (row.contains(document.activeElement)) this.place(next);
    else if (row === this.cursor) this.entered(next); // whoever has gone on to type keeps the focus
    queueMicrotask(() => {
      this.show();
      if (!this.rows.length) this.refresh();
    });
  }

  /** A key that means a bulk action where something is selected, else the action of the row. */
  async press(key) {
    if (this.ticked.length) return this.bar?.querySelector(`[data-bulk-key="${key}"]`)?.click();
    const button = this.cursor?.querySelector(`[data-row-key="${key}"]:not(:disabled, [aria-disabled])`);
    if (!button) return;
    // A click on a button is meant; a key may have been hit by mistake.
    const { keyAsk } = button.dataset;
    if (keyAsk && (await ask({ title: keyAsk, confirm: button.textContent.trim() })) === null) return;
    if (button.isConnected) button.click();
  }

  async begin(button) {
    if (isBusy(button)) return;
    // Before the question: the list may be another by the time it is answered.
    const ids = this.ticked.map((row) => row.dataset.id);
    const chosen = this.isAll ? { filter: JSON.parse(this.bulk.dataset.filter) } : { ids };
    const what = this.chosenInWords(this.isAll ? this.total : ids.length);
    const given = button.dataset;
    let answer = {};
    if ("always" in given || this.isAll || ids.length > ASK_FROM) {
      answer = await ask({
        title: given.ask.replace("{n}", what),
        text: given.askText?.replace("{n}", what[0].toUpperCase() + what.slice(1)),
        confirm: given.confirm,
        danger: button.classList.contains("danger"),
        because: true,
        choices: "paces" in given ? PACES : null,
      });
      if (answer === null) return;
    }
    const pace = answer.choice ? JSON.parse(answer.choice) : {};
    const because = answer.because ? { because: answer.because } : {};
    busy(button, true);
    try {
      const operation = await call("POST", given.bulkPath, { ...JSON.parse(given.body), ...chosen, ...pace, ...because });
      this.clear();
      if (given.bulkPath.endsWith("/bulk-retry") || JSON.parse(given.body).action === "retry") this.markInProgress(ids);
      this.follow(operation);
    } catch (problem) {
      toast(problem.whole || problem.message, "bad");
    } finally {
      busy(button, false);
    }
  }

  chosenInWords(count) {
    const noun = this.bulk.dataset.noun;
    const many = noun.endsWith("y") ? `${noun.slice(0, -1)}ies` : `${noun}s`;
    return count === null ? `all ${many} that match` : `${count.toLocaleString("en-US")} ${count === 1 ? noun : many}`;
  }

  /** The operation's bar; its id in the address, so that a reload finds it again. */
  follow(operation) {
    const address = new URL(location.href);
    address.searchParams.set("op", operation.id);
    history.replaceState(null, "", address);
    const ended = () => {
      this.inProgress.clear();
      this.refresh();
    };
    watch(this.bulk, operation, { isNew: true, ended, closed: forgetOperation });
  }

  markInProgress(ids) {
    for (const id of ids) this.inProgress.add(id);
    for (const row of this.rows.filter((each) => this.inProgress.has(each.dataset.id))) {
      const place = row.querySelector('[data-cell="next"]') || row.querySelector("td.acts");
      place.replaceChildren(element("span", { class: "badge waiting" }, "in progress"));
      for (const button of row.querySelectorAll("td.acts button")) button.disabled = true;
    }
  }

  /** The same list as it is now, with what is selected in it. Asked for by the person, or at the end of what they began: it
   *  does not move by itself, and what is being typed above it stays. */
  async refresh() {
    let read;
    try {
      read = await thisPageNow();
    } catch {
      return toast("The list could not be loaded anew: the server cannot be reached.", "bad");
    }
    if (!read) return;
    putInPlace(read);
    this.put(read, { isSame: true });
  }

  /** The rows of another look at this page. `isSame`: with the same filters, so that what is selected stays so. */
  put(read, { isSame }) {
    const body = (section) => section.querySelector("[data-list-body]") || section;
    const old = body(this.section);
    const hadFocus = old.contains(document.activeElement);
    const ticked = new Set(isSame ? this.ticked.map((row) => row.dataset.id) : []);
    old.replaceChildren(...body(read.querySelector("[data-list-section]")).childNodes);
    const bulk = read.querySelector("[data-bulk]");
    if (this.bulk && bulk) {
      Object.assign(this.bulk.dataset, { total: bulk.dataset.total, filter: bulk.dataset.filter });
      // Its buttons are those of the state that is shown.
      if (this.bar) this.bar.replaceWith(bulk.querySelector("[data-selection]"));
    }
    this.find();
    for (const row of this.rows.filter((each) => ticked.has(each.dataset.id))) row.querySelector("[data-tick]").checked = true;
    this.lastTicked = null;
    this.isAll = false;
    this.markInProgress([]);
    this.bindKeys();
    refreshTimes(this.section);
    this.show();
    if (hadFocus) this.rows.length ? this.place(this.rows[0]) : document.querySelector("main").focus();
  }

  /** The keys of the rows and of the bar, under the names that their buttons have. */
  bindKeys() {
    const keys = new Map();
    for (const button of this.section.querySelectorAll("[data-row-key]")) keys.set(button.dataset.rowKey, button.textContent.trim());
    for (const button of this.section.querySelectorAll("[data-bulk-key]")) {
      if (!keys.has(button.dataset.bulkKey)) keys.set(button.dataset.bulkKey, button.firstChild.textContent.trim());
    }
    for (const [key, name] of keys) bind(key, `${name}: the row, or all selected`, () => this.press(key), { where: isOnList });
  }
}

/** Ask what is new whenever numbers come, one question at a time; `look` is given the filter that the page watches.
 *  Numbers that come while one is under way are asked about after it: its answer may be older than they are.
 */
export function watchForNew(look) {
  let asking = false;
  let isWanted = false;
  async function ask() {
    isWanted = true;
    if (asking) return;
    asking = true;
    while (isWanted) {
      isWanted = false;
      const place = document.querySelector("[data-new][data-watch]");
      try {
        if (place) await look(JSON.parse(place.dataset.watch));
      } catch {
        // The numbers come again; the list itself is as true as it was.
      }
    }
    asking = false;
  }
  document.addEventListener("counts", ask);
  if (latestCounts()) ask(); // they came before this script did
}

/** What is new is told above the list in words; it comes when asked for. */
export function announce(list, text) {
  const place = document.querySelector("[data-new]");
  const told = place.querySelector("button");
  if (!text) return place.replaceChildren();
  if (told) {
    if (told.textContent !== text) told.textContent = text;
    return;
  }
  const button = element("button", { type: "button", class: "new-rows" }, text);
  button.addEventListener("click", () => list.refresh());
  place.replaceChildren(button);
}

function forgetOperation() {
  const address = new URL(location.href);
  address.searchParams.delete("op");
  history.replaceState(null, "", address);
}

function editTerm(button) {
  const box = document.querySelector("[data-search]");
  const typed = button.dataset.editTerm;
  const text = box.defaultValue;
  box.value = typed.includes(":") && text !== typed ? `${typed} ${text}`.trim() : typed;
  // The term itself goes with the next search: what is typed takes its place.
  const name = typed.split(":")[0];
  const field = box.form.elements[name];
  if (field && typed.includes(":")) field.value = "";
  button.closest(".term").remove();
  box.focus();
}

export function list() {
  const section = document.querySelector("[data-list-section]");
  const made = new List(section);
  const where = isOnList;
  bind("j", "Next row", () => made.move(1), { where });
  bind("k", "Row before", () => made.move(-1), { where });
  bind("x", "Select the row", () => made.cursor?.querySelector("[data-tick]")?.click(), { where });
  bind("Enter", "Open the row", () => made.cursor && location.assign(made.cursor.dataset.href), { where });
  bind("o", "Open the row", () => made.cursor && location.assign(made.cursor.dataset.href), { where });
  bind("Escape", "Go to the list; there, clear the selection", (event) => {
    if (isOnList(event.target)) made.clear();
    else made.place(made.cursor || made.rows[0]);
  });
  made.bindKeys();
  filter(made);
  for (const operation of JSON.parse(made.bulk?.dataset.operations || "[]")) {
    watch(made.bulk, operation, { ended: () => made.refresh(), closed: forgetOperation });
  }
  return made;
}

