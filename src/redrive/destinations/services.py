"""apprise itself, behind the guard: opens a service by its URL and hands it a message.

Called by destinations.apprise, in threads. What apprise says is True or False; why, it tells its logger. The lines of
that logger end here: none reaches our logs, and what is kept of them is without every part of the URL. Its services
speak HTTP by requests: what that one does on its own (redirects, proxies, answers of any size) it does not do here.
"""

import logging
import re
import ssl
import sys
import threading
from ipaddress import ip_address
from typing import Any
from urllib.parse import unquote

import apprise
import requests
import urllib3
from apprise.manager_plugins import NotificationManager
from apprise.plugins import NotifyBase
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

from redrive.core.channels import LOCAL_SERVICES
from redrive.core.classify import MAX_MESSAGE_CHARS, classify_status
from redrive.core.notice_text import Told, one_line
from redrive.core.outcome import Category, Failure, Outcome, Success
from redrive.core.redact import REDACTED, redact_text
from redrive.destinations.guard import Watch, guarded, is_guarded, watching

MAX_LINES = 10
MAX_LINE_CHARS = 300
MIN_HIDDEN_CHARS = 3  # shorter parts of a URL are no secrets, and words of every sentence
MAX_ANSWER_BYTES = 1024 * 1024
CHUNK_BYTES = 65_536

_STATUS = re.compile(r"\berror=([1-5][0-9]{2})\b", re.ASCII)
_PARTS = re.compile(r"[/:?&=@#,;+%\s]+")
_TYPES = {
    "error": apprise.NotifyType.FAILURE,
    "warning": apprise.NotifyType.WARNING,
    "success": apprise.NotifyType.SUCCESS,
}
_CUT = apprise.OverflowMode.TRUNCATE
_ASSET = apprise.AppriseAsset(
    app_id="Redrive", app_desc="Redrive", app_url="", async_mode=False, secure_logging=True, storage_mode="memory"
)

_BEFORE_ANY_REQUEST = (NewConnectionError, ConnectTimeoutError, ssl.SSLError)  # TLS fails while hands are shaken

_heard = threading.local()


class _Ears(logging.Handler):
    """Keeps the warnings of the call that is under way in this thread."""

    def emit(self, record: logging.LogRecord) -> None:
        lines: list[str] | None = getattr(_heard, "lines", None)
        if lines is not None and record.levelno >= logging.WARNING and len(lines) < MAX_LINES:
            lines.append(record.getMessage())


_logger = logging.getLogger("apprise")
_logger.handlers[:] = [_Ears()]
_logger.propagate = False
_logger.setLevel(logging.WARNING)


def _is_ours(_record: logging.LogRecord) -> bool:
    return not is_guarded()


for _name in [*logging.root.manager.loggerDict]:
    if _name.partition(".")[0] == "urllib3":  # whose warnings name hosts and whole URLs
        logging.getLogger(_name).addFilter(_is_ours)
urllib3.disable_warnings()  # which would stand on stderr, with the host

_send_of = requests.Session.send


def _send(session: requests.Session, request: requests.PreparedRequest, **terms: Any) -> requests.Response:
    """As it was, but inside a guarded call one request is one request, and its answer no larger than anybody needs.

    A proxy of the environment would connect for us to whatever it may reach, and a redirect is another place. What is
    compressed nobody asked for, and it is not unpacked: a few bytes could become gigabytes.
    """
    watch = watching()
    if watch is None:
        return _send_of(session, request, **terms)
    request.headers["Accept-Encoding"] = "identity"
    try:
        answer = _send_of(session, request, **(terms | {"allow_redirects": False, "proxies": {}, "stream": True}))
    except (requests.ConnectionError, requests.Timeout) as problem:
        watch.may_have_told |= _has_gone_out(problem)
        raise
    watch.may_have_told |= classify_status(answer.status_code) is None
    answer.raw.headers.pop("content-encoding", None)
    body = bytearray()
    for chunk in answer.iter_content(CHUNK_BYTES):
        body += chunk
        if len(body) >= MAX_ANSWER_BYTES:
            break
    answer._content = bytes(body[:MAX_ANSWER_BYTES])
    answer._content_consumed = True
    answer.close()
    return answer


def _has_gone_out(problem: object) -> bool:
    """Whether a request that failed may have been read all the same: its connection was there, and trusted."""
    while isinstance(problem, Exception):
        if isinstance(problem, _BEFORE_ANY_REQUEST):
            return isinstance(problem, ssl.SSLEOFError)  # but an end that nobody announced comes at any time
        problem = getattr(problem, "reason", None) or next(iter(problem.args), None)
    return True


requests.Session.send = _send  # type: ignore[assignment, method-assign]
_manager: Any = NotificationManager  # whose types are not told
_manager().load_modules()  # all services, before any guard


def problem_of(url: str, watch: Watch) -> str | None:
    """Why it cannot be used; None where it can. Without a look-up."""
    service = _opened(url, watch, [])
    if service is None:
        return "is not a URL of a service that apprise knows, or lacks something that the service needs"
    targets = _targets(service)
    if targets > 1:  # apprise says one thing of all of them: if one failed, all would be told again
        return f"has {targets} targets: make an endpoint for each"
    host = getattr(service, "host", None)
    if isinstance(host, str) and host:
        try:
            ip = ip_address(host.strip("[]"))
        except ValueError:
            return None  # a name, or a part of a token: what is looked up is judged when it is connected to
        why = watch.rules.refusal(ip)
        if why is not None:
            return f"its address is not reachable for deliveries: {why}. See REDRIVE_ALLOW_NETWORKS"
    return None


def notify(url: str, said: Told, watch: Watch) -> Outcome:
    """Hand a message over; what came of it."""
    lines: list[str] = []
    try:
        service = _opened(url, watch, lines)
        if service is None:
            return Failure(Category.CONFIGURATION, "apprise does not understand the endpoint's URL any more.")
        with guarded(watch), _listening(lines):
            taken = service.notify(
                body=said.text,
                title=said.subject,
                notify_type=_TYPES.get(said.severity, apprise.NotifyType.INFO),
                body_format=apprise.NotifyFormat.TEXT,
                # What is longer than the service takes, it would refuse: of a long text people get the beginning.
                overflow=_CUT if service.overflow_mode == apprise.OverflowMode.UPSTREAM else None,
            )
    except Exception as problem:  # noqa: BLE001 - 170 services of others: whatever they raise, it was a failed try
        lines.append(f"{type(problem).__name__}: {problem}")
        taken = False
    return Success() if taken else _failure(url, lines, watch)


def _opened(url: str, watch: Watch, lines: list[str]) -> NotifyBase | None:
    with guarded(watch), _listening(lines):
        service = apprise.Apprise.instantiate(url, asset=_ASSET)
    return service if service is not None and is_by_http(type(service)) else None


def _targets(service: NotifyBase) -> int:
    """How many messages it makes of one. Newer versions of apprise count each as often as they would try it."""
    counted, again = len(service), getattr(service, "retry", 0)
    tries = again + 1 if isinstance(again, int) and again > 0 else 1
    return counted // tries if counted % tries == 0 else counted


def is_by_http(service: type) -> bool:
    """Whether the guard sees what a service does. Others have libraries of their own, some of which connect from C, or
    act on this machine. A version of apprise that knows more of those than we do makes no difference.
    """
    if LOCAL_SERVICES & names_of(service):
        return False
    modules = (sys.modules[kind.__module__] for kind in service.__mro__)
    return any(getattr(module, "requests", None) is requests for module in modules)


def names_of(service: type) -> set[str]:
    """What its URLs may begin with."""
    named = (getattr(service, "protocol", None) or (), getattr(service, "secure_protocol", None) or ())
    return {str(name) for names in named for name in ([names] if isinstance(names, str) else names)}


def _failure(url: str, lines: list[str], watch: Watch) -> Failure:
    if watch.is_over:
        return Failure(Category.TIMEOUT, "The service did not take it in time.", possible_duplicate=watch.has_connected)
    if watch.refusals and not watch.has_connected:  # else another of its addresses was let through, and answered
        why = without(url, watch.refusals[-1])
        return Failure(Category.CONFIGURATION, redact_text(f"The service may not be sent to: {why}", MAX_MESSAGE_CHARS))
    heard = [without(url, line).replace("., error=", ", error=") for line in lines]
    said = "; ".join(line[:MAX_LINE_CHARS] for line in heard) or "apprise does not say why"
    message = redact_text(f"The service has not taken it: {said}", MAX_MESSAGE_CHARS)
    status = next((int(found[1]) for line in lines if (found := _STATUS.search(line))), None)
    category = classify_status(status) if status is not None else None
    if category is not None:
        return Failure(category, message, status_code=status, possible_duplicate=watch.may_have_told)
    is_network = any("onnection error" in line for line in lines)
    category = Category.NETWORK if is_network else Category.UNKNOWN
    return Failure(category, message, possible_duplicate=watch.may_have_told)


def without(url: str, text: str) -> str:
    """A line of apprise without any part of the URL, as it is written and as it is meant."""
    rest = url.partition("://")[2]
    parts = {part for form in (rest, unquote(rest)) for part in [form, *_PARTS.split(form)]}
    shown = one_line(text)
    for part in sorted(parts, key=len, reverse=True):
        if len(part) >= MIN_HIDDEN_CHARS:
            shown = re.sub(re.escape(part), REDACTED, shown, flags=re.IGNORECASE)
    return shown


class _listening:
    def __init__(self, lines: list[str]) -> None:
        self._lines = lines

    def __enter__(self) -> None:
        _heard.lines = self._lines

    def __exit__(self, *_: object) -> None:
        _heard.lines = None
