"""Deliveries by mail: an event is one message to all addresses of its endpoint, over when the mail server has taken it.

Called by engine.worker. smtplib blocks, so each try is a call in a thread, under its deadline: a server that hangs
loses its connection then, and the thread ends.
"""

import asyncio
import contextlib
import smtplib
import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from email.utils import format_datetime
from functools import partial
from json import dumps
from typing import Any

import structlog

from redrive.core.channels import MAIL_QUEUE, mail_url, notice_queue, recipients_problem
from redrive.core.classify import MAX_MESSAGE_CHARS, ConfigurationError, error_category
from redrive.core.mail import MailServer, Sender
from redrive.core.mail_message import Headers, has_only, in_lines, in_words, mailbox, written
from redrive.core.notice_text import one_line, told
from redrive.core.outcome import Category, Failure, Outcome, Success
from redrive.core.ports import EndpointBook, EndpointTerms, Exchange, Job, Released, Try
from redrive.core.redact import redact_text
from redrive.destinations.answers import impossible
from redrive.destinations.people import SLOT_WAIT_S, Counter, problem_of
from redrive.destinations.threads import DaemonThreads

MAX_AT_ONCE = 8  # connections to the mail server
MAX_ANSWER_CHARS = 300
QUIT_WITHIN_S = 2.0
NOT_OURS = (
    "The mail was not sent: it would have had other headers than those that Redrive writes. Something that others "
    "wrote, such as the event's type, reads as one."
)

log = structlog.get_logger("redrive.mail")


@dataclass(frozen=True, slots=True)
class _Plan:
    problem: str | None
    to: tuple[str, ...]

    @property
    def place(self) -> str:
        return mail_url(self.to)


@dataclass(slots=True)
class _Talk:
    """What a try has come to, as its thread and its deadline see it."""

    ends_at: float  # of time.monotonic()
    client: smtplib.SMTP | None = None
    handed_over: bool = False  # the whole message went out: the server may have taken it
    is_over: bool = False

    def left_s(self) -> float:
        left = self.ends_at - time.monotonic()
        if left <= 0 or self.is_over:
            raise TimeoutError
        return left

    def cut(self) -> None:
        """Let a thread that waits for the server go on, to its end."""
        self.is_over = True
        sock = self.client.sock if self.client is not None else None
        if sock is not None:
            with contextlib.suppress(OSError):  # it is closed already
                sock.shutdown(socket.SHUT_RDWR)


@dataclass(frozen=True, slots=True)
class _Answer:
    """What the server said of one address."""

    address: str
    code: int
    text: str

    @property
    def is_taken(self) -> bool:
        return 200 <= self.code <= 299

    def __str__(self) -> str:
        return f"{self.address}: {self.code} {self.text}".rstrip()


class NoTls(ConfigurationError):
    """The server does not offer STARTTLS, and nothing is sent in the clear."""


class MailDestination:
    def __init__(
        self,
        server: MailServer,
        sender: Sender,
        book: EndpointBook,
        *,
        public_url: str | None = None,
        at_once: int = MAX_AT_ONCE,
        slot_wait_s: float = SLOT_WAIT_S,
    ) -> None:
        self._server = server
        self._sender = sender
        self._public_url = public_url
        self._counter = Counter(book, _plan, what="mails", at_once=at_once, slot_wait_s=slot_wait_s)

    @property
    def queues(self) -> Sequence[str]:
        return (MAIL_QUEUE, notice_queue(MAIL_QUEUE))

    async def prepare(self, jobs: Sequence[Job]) -> None:
        await self._counter.prepare(jobs)

    async def attempt(self, job: Job, now: datetime) -> Try | Released:
        plan = self._counter.plan_of(job)
        if isinstance(plan, Try):
            return plan
        said = told(job.event_type, job.event_id, job.body, public_url=self._public_url)
        message_id = f"<{job.id}@{self._sender.domain}>"  # of the task: whoever gets a second copy can tell
        head = self._head(job, plan.to, message_id, said.subject, now)
        raw = written(head, said.text)
        if not has_only(raw, head, said.text):
            return impossible(NOT_OURS, plan.place)
        headers = {"message-id": message_id, "subject": redact_text(one_line(said.subject))}
        given_back = await self._counter.take(job)
        if given_back is not None:
            return given_back
        talk = _Talk(time.monotonic() + job.timeout_s)
        call = partial(_send, self._server, self._sender.address, plan.to, raw, talk)
        try:
            async with asyncio.timeout(job.timeout_s):
                answers = await self._counter.run(job, call)
        except Exception as problem:  # noqa: BLE001 - whatever it is, it is what came of this try
            return Try(_failure(problem, self._server, talk), Exchange(plan.place, dumps(headers)))
        finally:
            talk.cut()
        refused = [answer for answer in answers if not answer.is_taken]
        if refused:
            headers["not-taken-for"] = redact_text("; ".join(map(str, refused)))
        return Try(_outcome(answers, job), Exchange(plan.place, dumps(headers)))

    def _head(self, job: Job, to: Sequence[str], message_id: str, subject: str, now: datetime) -> Headers:
        return [
            ("From", mailbox("From", self._sender.name, self._sender.address)),
            ("To", in_lines(to)),
            ("Subject", in_words("Subject", subject)),
            ("Date", format_datetime(now)),
            ("Message-ID", message_id),
            ("Auto-Submitted", "auto-generated"),
            ("X-Redrive-Event-Id", str(job.event_id)),
            ("X-Redrive-Event-Type", in_words("X-Redrive-Event-Type", job.event_type)),
        ]

    async def aclose(self) -> None:
        """Nothing is kept open: each try has a connection of its own."""


async def knock(server: MailServer, sender: Sender, within_s: float) -> Failure | None:
    """What a delivery would meet there before it names anybody: connect, TLS, sign in, who it is from. None: all well.

    For `redrive doctor`. No mail is sent.
    """
    threads = DaemonThreads(1, name="redrive-mail-knock")
    await threads.take()
    talk = _Talk(time.monotonic() + within_s)
    try:
        async with asyncio.timeout(within_s):
            await threads.run(partial(_knock, server, sender.address, talk))
    except Exception as problem:  # noqa: BLE001 - whatever it is, it is what came of it
        return _failure(problem, server, talk)
    finally:
        talk.cut()
    return None


def _knock(server: MailServer, sender: str, talk: _Talk) -> None:
    with _connected(server, talk) as client:
        client.ehlo_or_helo_if_needed()
        _mail(client, sender, 0)
        client.rset()


def _plan(terms: EndpointTerms) -> _Plan:
    return _Plan(problem_of(terms) or _unusable(terms), terms.mail_to)


def _unusable(terms: EndpointTerms) -> str | None:
    """Why its addresses, which an older version may have let through, are not written into a mail."""
    why = recipients_problem(terms.mail_to)
    return f"Nobody can be mailed at what the endpoint {terms.name!r} has as `to`: {why}." if why is not None else None


def _send(server: MailServer, sender: str, to: Sequence[str], raw: bytes, talk: _Talk) -> list[_Answer]:
    """Hand the message over, in a thread. What the server says of each address: one is enough."""
    with _connected(server, talk) as client:
        client.ehlo_or_helo_if_needed()
        _mail(client, sender, len(raw))
        answers = [_rcpt(client, address, talk) for address in to]
        if any(answer.is_taken for answer in answers):
            assert client.sock is not None
            client.sock.settimeout(talk.left_s())
            talk.handed_over = True
            code, text = client.data(raw)
            if not 200 <= code <= 299:
                talk.handed_over = False
                raise smtplib.SMTPDataError(code, text)
        return answers


@contextlib.contextmanager
def _connected(server: MailServer, talk: _Talk) -> Iterator[smtplib.SMTP]:
    trusted = ssl.create_default_context(cafile=server.ca_file) if server.security != "none" else None
    terms: dict[str, Any] = {
        "timeout": talk.left_s(),
        "local_hostname": socket.gethostname(),
    }  # its own guess asks the resolver
    client = smtplib.SMTP_SSL(**terms, context=trusted) if server.security == "tls" else smtplib.SMTP(**terms)
    # What the certificate must be for: smtplib knows it only where the constructor connects, which nobody could cut.
    client._host = server.host  # type: ignore[attr-defined]
    talk.client = client
    try:
        code, text = client.connect(server.host, server.port)
        if code != 220:
            raise smtplib.SMTPConnectError(code, text)
        if server.security == "starttls":
            client.ehlo_or_helo_if_needed()
            if not client.has_extn("starttls"):
                raise NoTls(
                    "The mail server does not offer STARTTLS, and mail is not sent without. See REDRIVE_SMTP_URL."
                )
            client.starttls(context=trusted)
        if server.user is not None and server.password is not None:
            client.login(server.user, server.password)
        yield client
        client.timeout = QUIT_WITHIN_S
        if client.sock is not None:
            client.sock.settimeout(QUIT_WITHIN_S)
        with contextlib.suppress(
            smtplib.SMTPException, OSError
        ):  # the message is handed over; how they part changes nothing
            client.quit()
    finally:
        client.close()


def _mail(client: smtplib.SMTP, sender: str, size: int) -> None:
    options = [f"size={size}"] if client.has_extn("size") else []
    code, text = client.mail(sender, options)
    if not 200 <= code <= 299:
        raise smtplib.SMTPSenderRefused(code, text, sender)


def _rcpt(client: smtplib.SMTP, address: str, talk: _Talk) -> _Answer:
    assert client.sock is not None
    client.sock.settimeout(talk.left_s())
    code, text = client.rcpt(address)
    if code == 421:  # it hangs up
        raise smtplib.SMTPResponseException(code, text)
    return _Answer(address, code, _words(text))


def _outcome(answers: Sequence[_Answer], job: Job) -> Outcome:
    """All of it, or what is left to do.

    Refused for good by some: those who can be reached were, and another try would reach nobody else. So it is
    delivered, and the log and the try say who was left out. Refused for now by some: it is tried again, and whoever
    has it may get it twice, under one id.
    """
    refused = [answer for answer in answers if not answer.is_taken]
    if not refused:
        return Success()
    said = "; ".join(map(str, refused))
    has_taken = len(refused) < len(answers)
    if any(400 <= answer.code <= 499 for answer in refused):
        others = " The others have it." if has_taken else ""
        text = redact_text(f"The mail server does not take it now for {said}.{others}", MAX_MESSAGE_CHARS)
        return Failure(Category.SERVER_ERROR, text, possible_duplicate=has_taken)
    if has_taken:
        log.warning(
            "mail_refused_for_some", task_id=str(job.id), endpoint_id=str(job.endpoint_id), refused=len(refused)
        )
        return Success()
    return Failure(Category.CLIENT_ERROR, redact_text(f"The mail server refuses it for {said}.", MAX_MESSAGE_CHARS))


def _failure(problem: Exception, server: MailServer, talk: _Talk) -> Failure:
    """What went wrong before the server had said of each address what it does."""
    named = f"{server.host}:{server.port}"
    if isinstance(problem, smtplib.SMTPServerDisconnected) and isinstance(problem.__context__, TimeoutError):
        problem = problem.__context__  # so smtplib calls it when nothing came for too long
    duplicate = talk.handed_over
    match problem:
        case NoTls():
            return Failure(Category.CONFIGURATION, str(problem))
        case TimeoutError():
            return Failure(
                Category.TIMEOUT, f"The mail server {named} did not take it in time.", possible_duplicate=duplicate
            )
        case smtplib.SMTPServerDisconnected():
            text = f"The mail server {named} ended the connection."
            return Failure(Category.NETWORK, text, possible_duplicate=duplicate)
        case smtplib.SMTPResponseException():
            return _refused(problem)
        case smtplib.SMTPNotSupportedError():
            text = f"The mail server {named} cannot be spoken to as REDRIVE_SMTP_URL says: it lets nobody sign in, say."
            return Failure(Category.CONFIGURATION, text)
    text = redact_text(f"The mail server {named} cannot be reached: {_cause(problem)}", MAX_MESSAGE_CHARS)
    return Failure(_category(problem), text, possible_duplicate=duplicate)


def _refused(problem: smtplib.SMTPResponseException) -> Failure:
    said = f"{problem.smtp_code} {_words(problem.smtp_error)}".rstrip()
    if 400 <= problem.smtp_code <= 499:
        return Failure(
            Category.SERVER_ERROR, redact_text(f"The mail server does not take it now: {said}", MAX_MESSAGE_CHARS)
        )
    if isinstance(problem, smtplib.SMTPAuthenticationError):
        text = f"The mail server does not let us in, by the user and password of REDRIVE_SMTP_URL: {said}"
        return Failure(Category.CONFIGURATION, redact_text(text, MAX_MESSAGE_CHARS))
    return Failure(Category.CLIENT_ERROR, redact_text(f"The mail server refuses it: {said}", MAX_MESSAGE_CHARS))


def _category(problem: Exception) -> Category:
    """A file that is not there, or is no certificate, is a matter of the settings."""
    if isinstance(problem, FileNotFoundError | PermissionError):
        return Category.CONFIGURATION
    return error_category(problem)


def _cause(problem: Exception) -> str:
    return f"{type(problem).__name__}: {problem}" if str(problem) else type(problem).__name__


def _words(text: bytes | str) -> str:
    shown = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    return one_line(shown)[:MAX_ANSWER_CHARS]
