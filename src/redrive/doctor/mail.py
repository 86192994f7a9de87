"""The mail server that endpoints of kind mail are reached by: whether it takes mail of ours. None is sent."""

from redrive.core.findings import Finding, Seen, problem
from redrive.core.outcome import Category, Failure
from redrive.destinations.mail import knock
from redrive.settings import Settings, SettingsError

MAIL = "mail", "The mail server takes mail from here."
MAIL_TIMEOUT_S = 5.0


async def look_at_mail(settings: Settings) -> Seen:
    server = settings.mail_server
    assert server is not None, "where none is configured, there is nothing to examine"
    try:
        sender = settings.mail_sender
    except SettingsError as why:
        return Seen(str(why), [problem(str(why), "Processes refuse to start.", "Set REDRIVE_MAIL_FROM.")])
    failure = await knock(server, sender, MAIL_TIMEOUT_S)
    named = f"The mail server {server.host}:{server.port}"
    if failure is not None:
        return Seen(failure.message, [_finding(failure)])
    tls = "without TLS" if server.security == "none" else "over TLS"
    signed_in = ", lets us sign in" if server.user is not None else ""
    return Seen(f"{named} answers {tls}{signed_in} and takes mail from {sender.address}.")


def _finding(failure: Failure) -> Finding:
    match failure.category:
        case Category.TIMEOUT | Category.NETWORK:
            fix = (
                "See that it runs, that this machine may reach it, and that the host, the port, starttls= and ca= of"
                " REDRIVE_SMTP_URL are right."
            )
        case Category.SERVER_ERROR:
            fix = "See that server's log. Where it only asks to come later, run `redrive doctor` again then."
        case Category.CONFIGURATION:
            fix = "Correct REDRIVE_SMTP_URL: its user, password, starttls= and ca=."
        case _:
            fix = "See that the server lets the user of REDRIVE_SMTP_URL send from REDRIVE_MAIL_FROM."
    return problem(failure.message, "Nobody gets mail: what is for endpoints of kind mail is retried, then dead.", fix)
