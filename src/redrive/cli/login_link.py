"""`redrive login-link`: a one-time sign-in URL for whoever can reach the database."""

from typing import Annotated

import typer

from redrive.cli.connect import act_of, open_desk
from redrive.cli.listener import url_of
from redrive.cli.lookup import role_of
from redrive.cli.options import AsJson, Where, command
from redrive.cli.output import emit, note, say
from redrive.cli.runner import Refused, WrongUsage, run
from redrive.core.permissions import Role
from redrive.store import sessions, users
from redrive.store.clock import DatabaseClock


def add_to(app: typer.Typer) -> None:
    command(app, "login-link")(login_link)


def sign_in_url_at(base: str, token: str) -> str:
    return f"{base.rstrip('/')}/login?token={token}"


def login_link(
    where: Where,
    role: Annotated[
        str | None, typer.Option("--role", help="What it may do; OWNER unless --email names a user.")
    ] = None,
    email: Annotated[str | None, typer.Option("--email", help="Sign in as this user, with their role.")] = None,
    url: Annotated[
        str | None, typer.Option("--url", help="Where people reach this Redrive, if not at its host and port.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print a URL that signs in to the UI, once, within 15 minutes."""

    async def work() -> bool:
        if role is not None and email is not None:
            raise WrongUsage("A user has a role already: give --email or --role.")
        if url is not None and not url.startswith(("http://", "https://")):
            raise WrongUsage("--url begins with http:// or https://.")
        async with open_desk(where) as desk:
            user_id = None
            if email is not None:
                user = await users.find_user(desk.engine, email)
                if user is None:
                    raise Refused(f'There is no user "{email}". `redrive users list` shows those of an org.')
                user_id = user["id"]
            as_role = role_of(role or Role.OWNER) if email is None else None
            async with desk.beyond() as session:
                token = await sessions.make_link(
                    session, user_id=user_id, role=as_role, act=act_of(), clock=DatabaseClock()
                )
            link = sign_in_url_at(url or url_of(desk.settings.host, desk.settings.port), token)
        if as_json:
            emit({"sign_in_url": link, "expires_in_s": int(sessions.LINK_LASTS.total_seconds())})
        else:
            say(link)
            note("It signs in once, within 15 minutes. Whoever has it has the role: pass it on with care.")
        return True

    run(work)
