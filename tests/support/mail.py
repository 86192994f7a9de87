"""A real mail server for tests, on loopback, in a thread of its own: takes what it gets, or answers as scripted.

with mail_server() as mail:
    mail.refuse("gone@example.com", "550 no such user")   # at RCPT, until `mail.take_all()`
    ... settings with mail.url ...
    (message,) = mail.messages
"""

import asyncio
import email.policy
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.parser import BytesParser
from pathlib import Path
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, Envelope, LoginPassword, Session

HOLD_S = 30.0


@dataclass  # no slots: aiosmtpd looks through the attributes of whoever takes its mail, which Python 3.11.2 breaks with
class MailServer:
    """`messages` in the order of arrival; `envelopes` say whom each went to."""

    port: int = 0
    messages: list[EmailMessage] = field(default_factory=list)
    envelopes: list[list[str]] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)
    begun: list[str] = field(default_factory=list)  # the Message-ID of each that came, whatever became of it
    logins: list[tuple[str, str]] = field(default_factory=list)
    at_rcpt: dict[str, str] = field(default_factory=dict)
    at_data: list[str] = field(default_factory=list)  # one each
    hangs: bool = False
    let_go: threading.Event = field(default_factory=threading.Event)
    password: str | None = None

    @property
    def url(self) -> str:
        return f"smtp://127.0.0.1:{self.port}?starttls=none"

    def to(self, address: str) -> list[EmailMessage]:
        return [message for message, to in zip(self.messages, self.envelopes, strict=True) if address in to]

    def clear(self) -> None:
        self.messages.clear()
        self.envelopes.clear()
        self.raw.clear()

    # What aiosmtpd calls.

    async def handle_RCPT(
        self, _server: Any, _session: Session, envelope: Envelope, address: str, _options: list[str]
    ) -> str:
        answer = self.at_rcpt.get(address)
        if answer is not None:
            return answer
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, _session: Session, envelope: Envelope) -> str:
        assert isinstance(envelope.content, bytes)
        message = BytesParser(EmailMessage, policy=email.policy.default).parsebytes(envelope.content)
        self.begun.append(str(message["message-id"]))
        if self.at_data:
            return self.at_data.pop(0)
        if self.hangs:
            await server.loop.run_in_executor(None, self.let_go.wait, HOLD_S)
            return "451 too late"
        self.raw.append(envelope.content)
        self.messages.append(message)
        self.envelopes.append(list(envelope.rcpt_tos))
        return "250 OK"

    def judge(self, _server: Any, _session: Any, _envelope: Any, _mechanism: str, given: LoginPassword) -> AuthResult:
        self.logins.append((given.login.decode(), given.password.decode()))
        return AuthResult(success=given.password.decode() == self.password, handled=False)


@contextmanager
def mail_server(*, certificate: tuple[Path, Path] | None = None, password: str | None = None) -> Iterator[MailServer]:
    """With a `certificate` (and its key) it offers STARTTLS, and with a password it wants one."""
    mail = MailServer(password=password)
    context = None
    if certificate is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*certificate)
    controller = _Controller(
        mail,
        hostname="127.0.0.1",
        port=0,
        tls_context=context,
        require_starttls=context is not None,
        authenticator=mail.judge if password is not None else None,
        auth_required=password is not None,
    )
    controller.start()
    try:
        mail.port = controller.port
        yield mail
    finally:
        mail.let_go.set()
        controller.stop()


class _Controller(Controller):
    """aiosmtpd's, which looks whether it can be reached at the port that it was given: here, any that is free."""

    def _trigger_server(self) -> None:
        assert isinstance(self.server, asyncio.Server)
        self.port = self.server.sockets[0].getsockname()[1]
        super()._trigger_server()  # type: ignore[no-untyped-call]
