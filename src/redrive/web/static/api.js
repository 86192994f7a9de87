// Calls of the API with the session's cookie. What fails is thrown as a Problem, whose message is for people.

export class Problem extends Error {
  constructor(status, shape) {
    super(shape.detail || `The server answered ${status}.`);
    this.status = status;
    this.errors = shape.errors || [];
  }

  /** The detail with what is wrong in each field. */
  get whole() {
    const said = this.errors.map((error) => `${error.loc.filter((part) => part !== "body").join(".") || "input"}: ${error.msg}`);
    return said.length ? said.join("; ") : this.message;
  }
}

// The org that the page shows: a session may have gone on to another one, in another tab.
const org = document.body?.dataset.org;

function headersFor(path, body) {
  const headers = { accept: "application/json" };
  if (body !== undefined) headers["content-type"] = "application/json";
  if (org && path !== "/v1/session") headers["x-redrive-org"] = org;
  return headers;
}

export async function call(method, path, body) {
  let answer;
  try {
    answer = await fetch(path, {
      method,
      headers: headersFor(path, body),
      body: body === undefined ? undefined : typeof body === "string" ? body : JSON.stringify(body),
    });
  } catch {
    const isSafe = method === "GET" ? "Try again." : "Whether it was done is not known: look before you try again.";
    throw new Problem(0, { detail: `The server cannot be reached. ${isSafe}` });
  }
  if (answer.status === 401 && path !== "/v1/session") {
    // What somebody is writing is not taken from them.
    if (!document.querySelector("dialog[open]")) {
      location.assign(`/sign-in?ended=1&next=${encodeURIComponent(location.pathname + location.search)}`);
    }
    throw new Problem(401, { detail: "Your session has ended. Sign in again in another tab, then go on here." });
  }
  const isJson = (answer.headers.get("content-type") || "").includes("json");
  const shape = isJson ? await answer.json() : {};
  if (answer.status === 404 && shape.detail === "There is no such org.") {
    throw new Problem(404, { detail: "You have switched to another org in another tab. Reload this page to go on in that one." });
  }
  if (!answer.ok) throw new Problem(answer.status, shape);
  return shape;
}
