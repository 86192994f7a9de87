"""What is wrong with something that a migration made, why it matters, and the statement that puts it right. Pure.

Used by store.examinations.schema.
"""

import re
from typing import NamedTuple

from redrive.core.findings import Finding, problem, warning
from redrive.store.db import Record
from redrive.store.migrate import Migration, load_migrations

_PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_SPELLING = re.compile(r"[\s()]+")


class Made(NamedTuple):
    """Something that a migration made. The definition is the statement that makes it, where there is one."""

    kind: str
    on_what: str
    name: str
    definition: str

    @property
    def key(self) -> tuple[str, str]:
        return self.kind, self.name

    @property
    def own_name(self) -> str:
        """Without that of its table, as SQL has it."""
        return identifier(self.name.partition(".")[2])

    @property
    def gist(self) -> str:
        """Without what versions of PostgreSQL spell in ways of their own."""
        return _SPELLING.sub("", self.definition)


def identifier(name: str) -> str:
    """To be pasted into SQL: whoever made the thing chose the name."""
    return name if _PLAIN_NAME.fullmatch(name) else '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def object_finding(made: Made, found: Made | None) -> Finding:
    how = "is missing" if found is None else "is not as the migrations made it"
    name = f"The {made.kind} {made.name}"
    match made.kind:
        case "index":
            unique = (
                "Rows may appear twice that must not."
                if "UNIQUE" in made.definition
                else "Queries read whole tables instead: it works, and gets slower with every row."
            )
            return problem(f"{name} on {made.on_what} {how}.", unique, _index_fix(made, found))
        case "constraint":
            fix = (
                f"{made.definition};"
                if found is None
                else f"ALTER TABLE redrive.{made.on_what} DROP CONSTRAINT {made.own_name}; {made.definition};"
            )
            return problem(f"{name} {how}.", "Rows that must not be can be written.", fix)
        case "trigger":
            drop = f"DROP TRIGGER {made.own_name} ON redrive.{made.on_what}; " if found is not None else ""
            fix = f"{drop}{made.definition};"
            if found is not None and found.definition.endswith("-- switched off"):
                how, fix = (
                    "is switched off",
                    f"ALTER TABLE redrive.{made.on_what} ENABLE TRIGGER {made.own_name};",
                )
            return problem(
                f"{name} {how}.", "Guards or counters do not work: run `redrive check` when it is back.", fix
            )
    file = _made_by(made, load_migrations())
    return problem(
        f"{name} {how}.",
        "Redrive relies on it as it was made.",
        f"See {file} for how it is made, and put it back; or restore a backup." if file else "Restore a backup.",
    )


def _index_fix(made: Made, found: Made | None) -> str:
    build = (
        re.sub(r"^CREATE (UNIQUE )?INDEX ", lambda m: f"CREATE {m[1] or ''}INDEX CONCURRENTLY ", made.definition) + ";"
    )
    return build if found is None else f"DROP INDEX CONCURRENTLY redrive.{made.name}; {build}"


def _made_by(made: Made, migrations: list[Migration]) -> str | None:
    """The last migration that speaks of it, by its file name."""
    word = re.compile(rf"\b{re.escape(made.name.partition('(')[0].rpartition('.')[2])}\b")
    titles = [migration.title for migration in migrations if word.search(migration.sql)]
    return f"{titles[-1]}.sql" if titles else None


def security_finding(made: Made, found: Made | None) -> Finding:
    table = f"redrive.{made.on_what}"
    match made.kind:
        case "security":
            missing = [
                word for word in made.definition.split() if found is None or word not in found.definition.split()
            ]
            if not missing:  # more than was asked for
                return warning(
                    f"Row-level security of {made.on_what} is stricter than the migrations made it.",
                    "Redrive may not see its own rows.",
                    f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY;",
                )
            verbs = {"enabled": "ENABLE", "forced": "FORCE"}
            return problem(
                f"Row-level security of {made.on_what} is not {' and '.join(missing)}.",
                "A tenant may see and change rows of all others.",
                " ".join(f"ALTER TABLE {table} {verbs[word]} ROW LEVEL SECURITY;" for word in missing),
            )
        case "policy":
            policy = made.own_name
            drop = f"DROP POLICY {policy} ON {table}; " if found is not None else ""
            how = "is missing" if found is None else "is not as the migrations made it"
            return problem(
                f"The policy {policy} of {made.on_what} {how}.",
                "It decides whose rows a session sees and changes.",
                f"{drop}{made.definition};",
            )
    role = made.name.partition(" on ")[0]
    if found is None:
        return problem(
            f"A grant is missing: {made.name}.", "Redrive is refused what it has to do.", f"{made.definition};"
        )
    more = f"REVOKE ALL ON {table} FROM {role}; " if "(" not in made.name else ""
    return problem(
        f"The rights of {made.name} are not those that the migrations gave.",
        "More than these let a role do what it must not, less keeps Redrive from working.",
        f"{more}{made.definition};",
    )


def beyond_finding(made: Made) -> Finding:
    if made.kind == "policy":
        policy = made.own_name
        return problem(
            f"{made.on_what} has a policy that no migration made: {policy}.",
            "It may let sessions see rows of other tenants.",
            f"DROP POLICY {policy} ON redrive.{made.on_what};",
        )
    return problem(
        f"A right was granted that no migration gave: {made.name}.",
        "A role may do what it must not.",
        made.definition.replace("GRANT", "REVOKE", 1).replace(" TO ", " FROM ") + ";",
    )


def role_findings(row: Record) -> list[Finding]:
    name = row["name"]
    found = []
    for flag, word, why in (
        ("rolsuper", "SUPERUSER", "Nothing binds a superuser: row-level security least of all."),
        ("rolbypassrls", "BYPASSRLS", "Row-level security does not bind it: a tenant may see all others."),
        ("rolcreaterole", "CREATEROLE", "It could give itself the rights of others."),
        (
            "rolcanlogin",
            "LOGIN",
            "Redrive becomes this role after it has logged in as another; nobody has to log in as it.",
        ),
    ):
        if row[flag]:
            tell = warning if flag == "rolcanlogin" else problem
            found.append(tell(f"The role {name} has {word}.", why, f"ALTER ROLE {name} NO{word};"))
    if row["owns"]:
        found.append(
            problem(
                f"The role {name} owns {row['owns']} tables of the schema redrive.",
                "An owner may switch row-level security off.",
                f"REASSIGN OWNED BY {name} TO redrive; or whatever the login is that migrates.",
            )
        )
    beyond = [role for role in row["member_of"] if role not in ("pg_monitor", "pg_read_all_stats")]
    found += [
        problem(
            f"The role {name} is a member of {role}.",
            "It has the rights of that role on top of its own.",
            f"REVOKE {identifier(role)} FROM {name};",
        )
        for role in beyond
    ]
    return found
