// Where a JSON text is wrong, by line and column. The browser's own parser says whether; its messages differ in how they
// say where, if at all.

const TOKEN = /[ \t\r\n]+|"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.+-])|(?:true|false|null)(?!\w)|[[\]{},:]/y;

/** null, or {message, line, column} of the first thing that cannot stand where it stands. */
export function fault(text) {
  try {
    JSON.parse(text);
    return null;
  } catch {
    const [at, message] = find(text);
    const before = text.slice(0, at).split("\n");
    return { message, line: before.length, column: before.at(-1).length + 1 };
  }
}

function find(text) {
  const open = [];
  let wants = "value"; // value | first value | name | first name | colon | more | end
  let at = 0;
  while (at < text.length) {
    TOKEN.lastIndex = at;
    const token = TOKEN.exec(text)?.[0];
    if (token === undefined) return [at, unreadable(text, at)];
    if (/\s/.test(token[0])) {
      at += token.length;
      continue;
    }
    const next = step(token, wants, open);
    if (next === null) return [at, `${expected(wants, open)} is expected here, not ${shown(token)}`];
    wants = next;
    at += token.length;
  }
  return [at, text.trim() ? `it ends too early: ${expected(wants, open)} is missing` : "it is empty"];
}

function step(token, wants, open) {
  const after = () => (open.length ? "more" : "end");
  const isValueWanted = wants === "value" || wants === "first value";
  switch (token) {
    case "[":
    case "{":
      if (!isValueWanted) return null;
      open.push(token);
      return token === "[" ? "first value" : "first name";
    case "]":
    case "}": {
      const mayClose = wants === "more" || wants === (token === "]" ? "first value" : "first name");
      if (!mayClose || open.at(-1) !== (token === "]" ? "[" : "{")) return null;
      open.pop();
      return after();
    }
    case ",":
      return wants !== "more" ? null : open.at(-1) === "[" ? "value" : "name";
    case ":":
      return wants === "colon" ? "value" : null;
  }
  if (wants === "name" || wants === "first name") return token[0] === '"' ? "colon" : null;
  return isValueWanted ? after() : null;
}

function expected(wants, open) {
  const close = open.at(-1) === "[" ? "]" : "}";
  return {
    value: "a value",
    "first value": "a value or ]",
    name: "a name in double quotes",
    "first name": "a name in double quotes or }",
    colon: "a colon",
    more: `a comma or ${close}`,
    end: "the end",
  }[wants];
}

function unreadable(text, at) {
  if (text[at] === '"') return "this text has no closing quote, or holds a line break or a backslash that means nothing";
  if (text[at] === "'") return "texts stand in double quotes";
  return `${shown(/^[^\s,:[\]{}"]+/.exec(text.slice(at, at + 40))?.[0] ?? text[at])} is not JSON`;
}

function shown(token) {
  return token.length > 20 ? `${token.slice(0, 20)}…` : token;
}
