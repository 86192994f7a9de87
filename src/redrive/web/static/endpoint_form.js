// A new endpoint: its secret is shown once, then its page.

import { showSecret } from "./secret.js";
import { toastAfterwards } from "./toast.js";

document.addEventListener("sent", async (event) => {
  if (!event.target.matches("[data-new-endpoint]")) return;
  event.preventDefault();
  const { answer } = event.detail;
  const signs = !["mail", "apprise"].includes(answer.kind);
  if (signs) {
    await showSecret({
      title: `The secret of ${answer.name}`,
      text: "Deliveries are signed with it (webhook-signature). Give it to the receiver, so that it can tell ours from others.",
      secret: answer.secret,
    });
  }
  toastAfterwards("Endpoint made. Send it a test delivery.");
  location.assign(`/endpoints/${answer.id}`);
});
