// Dialogs that a page brings along: <button data-open="#id">, and data-close within.

document.addEventListener("click", (event) => {
  const opener = event.target.closest("[data-open]");
  if (opener) document.querySelector(opener.dataset.open)?.showModal();
  event.target.closest("[data-close]")?.closest("dialog")?.close();
});
