// Who is signed in: the orgs they may switch to, the theme, signing out. And the menu on small screens.

import { call } from "./api.js";
import { element } from "./dialog.js";
import { toast } from "./toast.js";

const YEAR_S = 31536000;
const SEARCH_FROM = 11; // as many orgs fit into the menu without searching

async function showOrgs(details) {
  const box = details.querySelector("[data-orgs]");
  if (!details.open || box.dataset.loaded) return;
  box.dataset.loaded = "true";
  try {
    const { org, orgs } = await call("GET", "/v1/session");
    if (orgs.length < 2) return;
    const list = box.querySelector("ul");
    list.replaceChildren(...orgs.map((each) => {
      const button = element("button", { type: "button", class: "plain", disabled: each.id === org.id }, each.name);
      button.addEventListener("click", () => go(each.id));
      return element("li", {}, button);
    }));
    if (orgs.length >= SEARCH_FROM) list.before(searchOf(list));
    box.hidden = false;
  } catch (problem) {
    delete box.dataset.loaded; // opened again, it is asked for again
    toast(problem.message, "bad");
  }
}

/** A box that leaves only what it names. Of very many orgs the list holds some: Enter goes to any, by its whole name. */
function searchOf(list) {
  const box = element("input", { type: "search", "aria-label": "Find an org", placeholder: "Find an org", autocomplete: "off" });
  const named = () => box.value.trim().toLowerCase();
  box.addEventListener("input", () => {
    for (const item of list.children) item.hidden = !item.textContent.toLowerCase().includes(named());
  });
  box.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !named()) return;
    event.preventDefault();
    const left = [...list.children].filter((item) => !item.hidden);
    if (left.length === 1 && !left[0].firstChild.disabled) left[0].firstChild.click();
    else go(box.value.trim());
  });
  return box;
}

async function go(org) {
  try {
    await call("PATCH", "/v1/session", { org });
    location.assign("/");
  } catch (problem) {
    toast(problem.message, "bad");
  }
}

const details = document.querySelector("[data-account]");
details?.addEventListener("toggle", () => showOrgs(details));
if (details) showOrgs(details); // where it was opened before this script came
document.addEventListener("click", (event) => {
  if (details?.open && !details.contains(event.target)) details.open = false;
});
details?.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    details.open = false;
    details.querySelector("summary").focus();
  }
});
for (const choice of document.querySelectorAll("input[name=theme]")) {
  choice.addEventListener("change", () => {
    if (choice.value) document.documentElement.dataset.theme = choice.value;
    else delete document.documentElement.dataset.theme;
    document.cookie = `redrive_theme=${choice.value}; path=/; max-age=${choice.value ? YEAR_S : 0}; samesite=lax`;
  });
}
document.querySelector("[data-sign-out]")?.addEventListener("click", async () => {
  try {
    await call("DELETE", "/v1/session");
    location.assign("/sign-in");
  } catch (problem) {
    toast(problem.message, "bad");
  }
});

const menu = document.querySelector("[data-menu]");
menu?.addEventListener("click", () => {
  const isOpen = menu.getAttribute("aria-expanded") === "true";
  menu.setAttribute("aria-expanded", String(!isOpen));
});
