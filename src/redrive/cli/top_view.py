"""How `redrive top` looks: lines of text for a width and a height, the most important first. Pure.

What does not fit is left out from the end: of each list its last rows, then whole lists.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from rich.text import Text

from redrive.cli.output import NOTHING, cell
from redrive.core.findings import span
from redrive.core.pulse import wait_text
from redrive.store.overview import AtWork, Overview

UNLIMITED = 10_000
NARROW = 70
BARS = " ▁▂▃▄▅▆▇█"
STATE_STYLES = {"closed": "green", "open": "bold red", "ramping": "yellow", "disabled": "magenta"}

Row = dict[str, Any]


def lines(seen: Overview, *, width: int, height: int) -> list[Text]:
    """At most `height` of them, none wider than `width`."""
    sections = [
        _numbers(seen, width),
        *([_section("ALERTS", seen.alerts, lambda row: _alert(row, seen), "")] if seen.alerts else []),
        _section("WORKERS", seen.workers, lambda worker: _worker(worker, width), "none is at work"),
        _section("ENDPOINTS, last 10 min", seen.endpoints, lambda row: _endpoint(row, width), "none was tried"),
        _section("OPEN DEAD LETTERS, biggest causes", seen.groups, lambda row: _group(row, width), "none"),
    ]
    if seen.operations:
        sections.append(_section("OPERATIONS", seen.operations, _operation, ""))
    drawn = [_cut(line, width) for line in _fitted(sections, height)]
    return drawn[:height]


def _fitted(sections: Sequence[list[Text]], height: int) -> list[Text]:
    """The head whole; the lists share what is left, and leave to others what they do not need."""
    head, *lists = sections
    left = height - len(head)
    kept: list[Text] = list(head)
    for place, section in enumerate(lists):
        share = left // (len(lists) - place)
        rows = section[: max(share - 1, 0)] if share >= 3 else []
        if rows:
            kept += [Text(""), *rows]
            left -= len(rows) + 1
    return kept


def _numbers(seen: Overview, width: int) -> list[Text]:
    last, counted = seen.last, seen.counted
    rate = seen.success_rate
    p95 = seen.wait_s(0.95)
    depths = {name: counted.get(key, 0) for name, key in _DEPTHS.items()}
    due = "nothing due" if seen.oldest_due_s is None else f"oldest due {span(seen.oldest_due_s)}"
    title = Text.assemble(
        ("redrive top", "bold"),
        f"  {'all orgs' if seen.org is None else cell(seen.org)}",
        (f"  {' and '.join(f'the {scope} is paused' for scope in seen.paused)}" if seen.paused else "", "bold magenta"),
        (f"  {seen.at:%H:%M:%S}Z", "dim"),
    )
    last_minute = Text.assemble(
        _labelled("last whole minute"),
        (f"{last.created} created", "green"),
        "  ",
        (f"{last.delivered} delivered", "blue"),
        "  ",
        (f"{last.failed} dead", "red" if last.failed else ""),
    )
    quality = Text(
        f"{_labelled('15 minutes')}{_percent(rate)} succeeded  p95 {NOTHING if p95 is None else wait_text(p95)}  {due}",
        style="red" if (seen.oldest_due_s or 0) >= LATE_S else "",
    )
    depth = Text(_labelled("depth") + "  ".join(f"{n} {name}" for name, n in depths.items()))
    letters = Text(
        f"{_labelled('dead')}{counted.get('dead.open', 0)} open, {counted.get('dead.replaying', 0)} replaying"
    )
    found = [title, last_minute, quality, depth, letters]
    if width >= NARROW:
        found.append(
            Text.assemble(
                _labelled("delivered"), (_spark([m.delivered for m in seen.minutes]), "blue"), (" last 15 min", "dim")
            )
        )
    return found


def _labelled(what: str) -> str:
    return f"{what:<19}"


LATE_S = 60.0
_DEPTHS = {"waiting": "task.waiting", "retrying": "retrying", "in flight": "task.leased", "held": "task.held"}


def _section(title: str, rows: Sequence[Any], shown: Callable[[Any], Text], empty: str) -> list[Text]:
    if not rows:
        return [Text.assemble((title, "bold"), (f"  {empty}", "dim"))]
    return [Text(title, style="bold"), *map(shown, rows)]


def _worker(at_work: AtWork, width: int) -> Text:
    worker = at_work.worker
    seen = f"seen {span(worker.silent_s)} ago"
    text = Text.assemble(
        f"  {cell(worker.host)}:{worker.pid}  ",
        (seen, "bold red" if worker.is_silent else "green"),
        f"  {at_work.leases} of {worker.concurrency} in flight",
    )
    if width >= NARROW:
        text.append(f"  {cell(', '.join(worker.queues))}", style="dim")
    return text


def _endpoint(row: Row, width: int) -> Text:
    tries = row["succeeded"] + row["failed"]
    share = row["succeeded"] / tries if tries else None
    text = Text.assemble(
        "  ",
        (f"{row['state']:<8}", STATE_STYLES.get(row["state"], "yellow")),
        f"  {_percent(share):>6}  {row['failed']} of {tries} failed  {cell(row['name'])}",
    )
    if width >= NARROW:
        mean = NOTHING if row["mean_ms"] is None else f"{row['mean_ms']:.0f} ms"
        text.append(f"  {mean}  {cell(row['org'])}", style="dim")
    return text


def _group(row: Row, width: int) -> Text:
    text = Text(f"  {row['n']:>6}  {cell(row['event_type'])}  {cell(row['error_message'])}")
    if width >= NARROW:
        text.append(f"  {cell(row['org'])} {row['fingerprint']}", style="dim")
    return text


def _alert(row: Row, seen: Overview) -> Text:
    about = f"  {cell(row['subject'])}" if row["subject"] else ""
    since = span((seen.at - row["opened_at"]).total_seconds())
    return Text(f"  {row['rule']:<19}{about}  since {since}  {cell(row['org'])}", style="bold red")


def _operation(row: Row) -> Text:
    return Text(
        f"  {row['state']:<9}  {row['action']}  {row['done']} of {row['total']}, {row['failed']} failed "
        f" {cell(row['by'])}  {row['id']}"
    )


def _percent(share: float | None) -> str:
    return NOTHING if share is None else f"{share * 100:.1f} %"


def _spark(numbers: Sequence[int]) -> str:
    most = max(numbers, default=0) or 1
    return "".join(BARS[-(-n * (len(BARS) - 1) // most)] for n in numbers)


def _cut(line: Text, width: int) -> Text:
    line.truncate(width, overflow="ellipsis")
    return line


def shape(seen: Overview) -> Row:
    """For machines."""
    return {
        "at": seen.at,
        "org": seen.org,
        "paused": list(seen.paused),
        "per_minute": {name: getattr(seen.last, name) for name in ("created", "delivered", "failed")},
        "success_rate": seen.success_rate,
        "p95_s": seen.wait_s(0.95),
        "oldest_due_s": seen.oldest_due_s,
        "depth": {name.replace(" ", "_"): seen.counted.get(key, 0) for name, key in _DEPTHS.items()},
        "dead_letters": {name: seen.counted.get(f"dead.{name}", 0) for name in ("open", "replaying")},
        "minutes": [asdict(minute) for minute in seen.minutes],
        "workers": [
            {**asdict(at_work.worker), "leases": at_work.leases, "silent": at_work.worker.is_silent}
            for at_work in seen.workers
        ],
        "endpoints": list(seen.endpoints),
        "groups": list(seen.groups),
        "operations": list(seen.operations),
        "alerts": list(seen.alerts),
    }
