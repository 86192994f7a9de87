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

export async function call(method, path, body) {
  let answer;
  try {
    answer = await fetch(path, {
      method,
      headers: { accept: "application/json", ...(body === undefined ? {} : { "content-type": "application/json" }) },
      body: body === undefined ? undefined : typeof body === "string" ? body : JSON.stringify(body),
    });
  } catch {
    throw new Problem(0, { detail: "The server cannot be reached. Nothing was changed; try again." });
  }
  if (answer.status === 401 && path !== "/v1/session") {
    location.assign(`/sign-in?next=${encodeURIComponent(location.pathname + location.search)}`);
    throw new Problem(401, { detail: "Your session has ended. Sign in again." });
  }
  const isJson = (answer.headers.get("content-type") || "").includes("json");
  const shape = isJson ? await answer.json() : {};
  if (!answer.ok) throw new Problem(answer.status, shape);
  return shape;
}
