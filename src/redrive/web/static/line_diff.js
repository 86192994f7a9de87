// What changes from one text to another, line by line, with a little of what stands around it.

const MAX_CELLS = 4_000_000; // of the table of common lines; beyond, what differs is shown as a whole
const AROUND = 3;

/** [[mark, line]]: mark is "+", "-", " ", or "…" for lines left out. Nothing changed: []. */
export function lineDiff(before, after) {
  const [old, now] = [before.split("\n"), after.split("\n")];
  let start = 0;
  while (start < old.length && start < now.length && old[start] === now[start]) start += 1;
  let end = 0;
  while (end < old.length - start && end < now.length - start && old.at(-1 - end) === now.at(-1 - end)) end += 1;
  if (start === old.length && start === now.length) return [];
  const same = (lines) => lines.map((line) => [" ", line]);
  return folded([
    ...same(old.slice(0, start)),
    ...middle(old.slice(start, old.length - end), now.slice(start, now.length - end)),
    ...same(old.slice(old.length - end)),
  ]);
}

function middle(old, now) {
  if (old.length * now.length > MAX_CELLS) return [...old.map((line) => ["-", line]), ...now.map((line) => ["+", line])];
  const width = now.length + 1;
  const common = new Uint32Array((old.length + 1) * width); // longest common rest from [i][j]
  for (let i = old.length - 1; i >= 0; i -= 1) {
    for (let j = now.length - 1; j >= 0; j -= 1) {
      common[i * width + j] = old[i] === now[j] ? common[(i + 1) * width + j + 1] + 1 : Math.max(common[(i + 1) * width + j], common[i * width + j + 1]);
    }
  }
  const lines = [];
  let [i, j] = [0, 0];
  while (i < old.length || j < now.length) {
    if (i < old.length && j < now.length && old[i] === now[j]) {
      lines.push([" ", old[i]]);
      i += 1;
      j += 1;
    } else if (j >= now.length || (i < old.length && common[(i + 1) * width + j] >= common[i * width + j + 1])) {
      lines.push(["-", old[i]]);
      i += 1;
    } else {
      lines.push(["+", now[j]]);
      j += 1;
    }
  }
  return lines;
}

function folded(lines) {
  const near = new Uint8Array(lines.length);
  lines.forEach(([mark], at) => {
    if (mark !== " ") near.fill(1, Math.max(at - AROUND, 0), at + AROUND + 1);
  });
  const shown = [];
  lines.forEach((line, at) => {
    if (near[at]) shown.push(line);
    else if (shown.at(-1)?.[0] !== "…") shown.push(["…", ""]);
  });
  return shown;
}
