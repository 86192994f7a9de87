"""`redrive retention`: at once, let die what waited too long and remove what the policies no longer keep. Workers do so
by themselves, every hour.
"""

from typing import Annotated

import typer

from redrive.cli.connect import SLOW, act_of, reach, settings_of, with_a_note
from redrive.cli.options import AsJson, Place, command
from redrive.cli.output import Column, emit, note, table
from redrive.cli.runner import Refused, run
from redrive.core.sweep import Swept
from redrive.store.archive import ArchiveError

app = typer.Typer(no_args_is_help=True, help="Retention: run a pass.")

COLUMNS = (
    *("org", "events", "tasks", "attempts", "dead letters", "payload bytes", "idempotency keys", "operations"),
    *("notices", "runs", "alerts", "expired tasks"),
)


@command(app, "run")
def run_(
    place: Place,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go, and change nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make one pass over all orgs now, without rests, and show what went and how many tasks expired."""

    async def work() -> bool:
        from redrive.app import open_sweeper  # brings the whole of Redrive with it: only where it is needed
        from redrive.engine.janitor import ExpiryFailed, Janitor

        settings = settings_of(place)
        act = act_of("redrive retention run")
        async with reach(settings) as url:
            janitor = Janitor(
                lambda: open_sweeper(settings, url, act, dry_run=dry_run), every_s=0, dice=lambda: 0.5, rest=0
            )
            try:
                swept = await with_a_note(janitor.sweep(rested_s=0), SLOW)
            except ArchiveError as error:
                raise Refused(str(error)) from error
            except ExpiryFailed as error:
                _show(error.done, as_json, dry_run)
                raise Refused(str(error)) from error
        _show(swept, as_json, dry_run)
        return True

    run(work)


def _show(swept: dict[str, Swept], as_json: bool, dry_run: bool) -> None:
    found = {org: counts for org, counts in swept.items() if any(counts)}
    if as_json:
        for org, counts in found.items():
            emit({"org": org, "dry_run": dry_run, **counts._asdict()})
        return
    empty = "There is nothing that the policies do not keep, and nothing that waited too long."
    table([Column(title) for title in COLUMNS], [[org, *counts] for org, counts in found.items()], empty=empty)
    if found:
        done = "That was removed; tasks that expired are dead letters now."
        note("Nothing was changed: this was a dry run." if dry_run else done)
