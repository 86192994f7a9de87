"""Examinations of what the migrations made: all of it is there, as they made it, and tenants are kept apart.

What must be there stands in catalogue.tsv, read off a freshly migrated database (`make catalogue`; a test keeps
it true).
"""

from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources

import asyncpg

from redrive.core.findings import Finding, Seen, problem, warning
from redrive.store.db import Record
from redrive.store.examinations.advice import Made, beyond_finding, object_finding, role_findings, security_finding
from redrive.store.examinations.looking import Examination, Looking
from redrive.store.migrate import load_migrations

CATALOGUE = "catalogue.tsv"
SECURITY_KINDS = frozenset({"security", "policy", "grant"})
PLACE, PLACES = "¤", " | "  # in catalogue.tsv: the table's name, and between two of them
APART = ("redrive_app", "redrive_engine", "redrive_janitor", "redrive_producer")

Catalogue = Mapping[tuple[str, str], Made]


def catalogue_of(rows: Iterable[Record]) -> list[Made]:
    return [Made(row["kind"], row["on_what"], row["name"], " ".join(row["definition"].split())) for row in rows]


def as_text(made: Iterable[Made]) -> str:
    """A line for each kind, name and definition; what many tables have alike, once, with their names behind it."""
    lines: dict[tuple[str, str, str], list[str]] = {}
    for one in made:
        spelled = one.kind, one.name.replace(one.on_what, PLACE), one.definition.replace(one.on_what, PLACE)
        lines.setdefault(spelled, []).append(one.on_what)
    return "".join("\t".join([*spelled, PLACES.join(places)]) + "\n" for spelled, places in lines.items())


def from_text(text: str) -> list[Made]:
    made = []
    for line in text.splitlines():
        kind, name, definition, places = line.split("\t")
        made += [
            Made(kind, place, name.replace(PLACE, place), definition.replace(PLACE, place))
            for place in places.split(PLACES)
        ]
    return made


@cache
def expected() -> Catalogue:
    text = resources.files("redrive.store.examinations").joinpath(CATALOGUE).read_text(encoding="utf-8")
    return {made.key: made for made in from_text(text)}


async def look_at_migrations(looking: Looking) -> Seen:
    known = load_migrations()
    try:
        applied = {row["version"]: row for row in await looking.rows("doctor_migrations")}
    except asyncpg.UndefinedTableError:
        saw = "The database holds no Redrive."
        return Seen(saw, [problem(saw, "No process of Redrive starts on it.", "redrive migrate")])
    newest = max(applied, default=0)
    saw = f"The database is at schema {newest}, this Redrive knows {len(known)}."
    found: list[Finding] = []
    if newest > len(known):
        found.append(
            problem(
                saw,
                "A newer Redrive has migrated this database: this one refuses to start on it.",
                "Upgrade Redrive here, or restore a backup from before the newer one ran.",
            )
        )
    if missing := [migration.title for migration in known if migration.version not in applied]:
        found.append(
            problem(
                f"{len(missing)} migrations are not applied: {_few(missing)}.",
                "Redrive does not work on an older schema.",
                "redrive migrate",
            )
        )
    if changed := [m.title for m in known if m.version in applied and applied[m.version]["checksum"] != m.checksum]:
        found.append(
            problem(
                f"Migrations were applied that read differently here: {_few(changed)}.",
                "Another build of Redrive made this schema, or a file was changed: nobody knows what the database has.",
                "Install the release that made it, or the one that is to run; released migrations never change.",
            )
        )
    return Seen(saw, found)


async def look_at_objects(looking: Looking) -> Seen:
    there = await _there(looking)
    found = [
        object_finding(made, there.get(made.key))
        for made in expected().values()
        if made.kind not in SECURITY_KINDS and _is_off(made, there)
    ]
    found += [
        problem(
            f"The index {row['name']} on {row['on_what']} is invalid: it was never finished.",
            "It costs every write, and no query reads it.",
            f"REINDEX INDEX CONCURRENTLY redrive.{row['name']};",
        )
        for row in await looking.rows("doctor_invalid_indexes")
    ]
    theirs = [
        made
        for made in there.values()
        if made.kind == "trigger" and made.key not in expected() and ("table", made.on_what) in expected()
    ]
    found += [
        warning(
            f"{made.on_what} has a trigger that no migration made: {made.own_name}.",
            "It runs in the transactions of Redrive, and slows or refuses what they do.",
            f"DROP TRIGGER {made.own_name} ON redrive.{made.on_what}; unless somebody knows what it is for.",
        )
        for made in theirs
    ]
    counted = {kind: sum(made.kind == kind for made in expected().values()) for kind in _COUNTED}
    return Seen(
        "Compared with what the migrations make: "
        + ", ".join(f"{n} {_COUNTED[kind]}" for kind, n in counted.items())
        + ".",
        found,
    )


async def look_at_isolation(looking: Looking) -> Seen:
    there = await _there(looking)
    found = [
        security_finding(made, there.get(made.key))
        for made in expected().values()
        if made.kind in SECURITY_KINDS and _is_off(made, there)
    ]
    found += [
        beyond_finding(made)
        for made in there.values()
        if made.kind in ("policy", "grant") and made.key not in expected()
    ]
    rows = await looking.rows("doctor_roles")
    found += [finding for row in rows for finding in role_findings(row)]
    found += [
        problem(f"The role {name} does not exist.", "Redrive cannot work without it.", f"CREATE ROLE {name} NOLOGIN;")
        for name in APART
        if name not in {row["name"] for row in rows}
    ]
    tables = sum(made.kind == "security" and "enabled" in made.definition for made in expected().values())
    return Seen(
        f"Looked at row-level security of {tables} tables, their policies and grants, and {len(rows)} roles.", found
    )


_COUNTED = {
    "table": "tables",
    "column": "columns",
    "index": "indexes",
    "constraint": "constraints",
    "trigger": "triggers",
    "function": "functions",
    "view": "views",
}


async def _there(looking: Looking) -> Catalogue:
    return {made.key: made for made in catalogue_of(await looking.rows("doctor_catalogue"))}


def _is_off(made: Made, there: Catalogue) -> bool:
    """Missing, or other than it was made. Of a table that is gone, that is told and nothing else."""
    found = there.get(made.key)
    if found is not None:
        return found.gist != made.gist
    is_of_a_relation = made.kind not in ("table", "view", "function") and "(" not in made.on_what
    return not is_of_a_relation or any((kind, made.on_what) in there for kind in ("table", "view"))


def _few(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


MIGRATIONS = Examination("migrations", "The schema is the one that this Redrive knows.", look_at_migrations)
CATALOGUED = [
    Examination(
        "objects",
        "Tables, indexes, constraints, triggers and functions are as the migrations made them.",
        look_at_objects,
    ),
    Examination(
        "isolation", "Row-level security, its policies, grants and roles keep tenants apart.", look_at_isolation
    ),
]
