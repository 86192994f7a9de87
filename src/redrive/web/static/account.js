// Who is signed in: the orgs they may switch to, the theme, signing out. And the menu on small screens.

import { call } from "./api.js";
import { element } from "./dialog.js";
import { toast } from "./toast.js";

const YEAR_S = 31536000;

async function showOrgs(details) {
  const box = details.querySelector("[data-orgs]");
  if (!details.open || box.dataset.loaded) return;
  box.dataset.loaded = "true";
  try {
    const { org, orgs } = await call("GET", "/v1/session");
    if (orgs.length < 2) return;
    box.querySelector("ul").replaceChildren(...orgs.map((each) => {
      const button = element("button", { type: "button", class: "plain", disabled: each.id === org.id }, each.name);
      button.addEventListener("click", () => go(each.id));
      return element("li", {}, button);
    }));
    box.hidden = false;
  } catch (problem) {
    toast(problem.message, "bad");
  }
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
