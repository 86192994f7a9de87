"""`redrive hub`: take webhooks from an edge and forward them to a service here. Needs no database."""

import asyncio
import time
from ipaddress import ip_address
from typing import Annotated
from urllib.parse import urlsplit
from uuid import UUID

import typer

from redrive.cli.keyboard import keys
from redrive.cli.options import AsJson, command
from redrive.cli.output import cell, emit, note, say
from redrive.cli.runner import Refused, WrongUsage, run
from redrive.cli.serve import MetricsPort
from redrive.core.address import BadUrl, parse_target
from redrive.core.redact import redact_headers, redact_text, redact_url
from redrive.core.relay import Answered, Welcome
from redrive.engine.supervisor import stop_on_signals
from redrive.hub import edge as edges
from redrive.hub.forwarder import Forwarded, Forwarder
from redrive.hub.hub import Hub, Watcher
from redrive.observe import process_metrics as numbers
from redrive.observe.exposition import ProcessNumbers, write
from redrive.observe.metrics_server import Refused as MetricsRefused
from redrive.observe.metrics_server import serving_metrics
from redrive.settings import load_settings
from redrive.version import __version__

MAX_BODY_SHOWN_CHARS = 500


def add_to(app: typer.Typer) -> None:
    command(app, "hub")(hub)


def hub(
    edge: Annotated[str, typer.Option("--edge", help="The Redrive that webhooks come in at, https://…")],
    endpoint: Annotated[UUID, typer.Option("--endpoint", help="Its endpoint of kind relay: the id.")],
    forward: Annotated[str, typer.Option("--forward", help="The service here, like http://localhost:3000/hooks.")],
    key: Annotated[
        str,
        typer.Option(
            "--key",
            envvar="REDRIVE_KEY",
            help="A key of the edge, of the scope relay. REDRIVE_KEY keeps it out of the list of processes.",
            show_default=False,
        ),
    ],
    verbose: Annotated[bool, typer.Option("--verbose", help="Show headers and the beginning of bodies.")] = False,
    metrics_port: MetricsPort = None,
    as_json: AsJson = False,
) -> None:
    """Connect to an edge and forward what comes in at a relay's address to a service here, in order, until stopped."""

    async def work() -> bool:
        try:
            address = edges.address_of(edge, endpoint)
        except ValueError as problem:
            raise WrongUsage(f"--edge cannot be used: {problem}.") from None
        try:
            target = parse_target(forward)
        except BadUrl as problem:
            raise WrongUsage(f"--forward cannot be used: {problem}") from None
        if not key.isascii() or not key.isprintable() or not key:
            raise WrongUsage("--key is no API key.")
        if _is_in_the_clear(edge):
            note("The way to the edge is not encrypted: whoever is on it can read the key. Use https.")
        settings = load_settings(metrics_port=metrics_port)
        stop = stop_on_signals()
        forwarder = Forwarder(target)
        shown = redact_url(forward)
        counted = _Counted(_Printer(edge, shown, verbose, as_json))
        running = Hub(address, key, forwarder, counted, shown_forward=shown)
        resending: set[asyncio.Task[None]] = set()

        def resend() -> None:
            if not resending:  # one at a time, however often the key is pressed
                task = asyncio.create_task(_resend(running))
                resending.add(task)
                task.add_done_callback(resending.discard)

        own = ProcessNumbers("hub", numbers.OF_HUBS)
        try:
            async with serving_metrics(
                lambda accept: write([own], accept),
                counted.why_not_ready,
                host=settings.metrics_host,
                port=settings.metrics_port,
            ) as url:
                if url is not None:
                    note(f"Metrics are at {url}.")
                with keys({"r": resend, "q": stop.set}) as somebody:
                    if somebody and not as_json:
                        note("Press r to send the last webhook to your service again, q to quit.")
                    await running.run(stop)
        except (edges.Refused, MetricsRefused) as refused:
            raise Refused(str(refused)) from None
        finally:
            await asyncio.gather(*resending, return_exceptions=True)
            await forwarder.aclose()
        return True

    run(work)


async def _resend(running: Hub) -> None:
    if not await running.resend():
        note("No webhook has come in yet.")


def _is_in_the_clear(edge: str) -> bool:
    parts = urlsplit(edge)
    host = parts.hostname or ""
    try:
        is_here = ip_address(host).is_loopback
    except ValueError:
        is_here = host == "localhost" or host.endswith(".localhost")
    return parts.scheme == "http" and not is_here


class _Counted:
    """hub.hub.Watcher: keeps the numbers of this process, and tells another."""

    def __init__(self, told: Watcher) -> None:
        self._told = told
        self._why_away: str | None = "Not connected to the edge yet."
        numbers.HUB_CONNECTED.ask(lambda: float(self._why_away is None))
        numbers.BUILD.ask(lambda: 1, (__version__,))

    async def why_not_ready(self) -> str | None:
        return self._why_away

    def connected(self, welcome: Welcome) -> None:
        self._why_away = None
        self._told.connected(welcome)

    def away(self, why: str, again_in_s: float) -> None:
        self._why_away = f"The edge is away: {why}."
        self._told.away(why, again_in_s)

    def forwarded(self, done: Forwarded, *, acknowledged: bool) -> None:
        status = done.result.status if isinstance(done.result, Answered) else None
        numbers.note_forwarded(status, done.took_s, acknowledged=acknowledged or done.resent)
        self._told.forwarded(done, acknowledged=acknowledged)


class _Printer:
    """hub.hub.Watcher, for people or for machines."""

    def __init__(self, edge: str, forward: str, verbose: bool, as_json: bool) -> None:
        self._edge = redact_url(edge)
        self._forward = forward
        self._verbose = verbose
        self._as_json = as_json

    def connected(self, welcome: Welcome) -> None:
        if welcome.delivers:
            rest = f'webhooks for "{cell(welcome.endpoint)}" go to {self._forward}.'
        else:
            rest = f'another hub delivers for "{cell(welcome.endpoint)}"; this one takes over when it goes.'
        note(f"Connected to {self._edge}: {rest}")

    def away(self, why: str, again_in_s: float) -> None:
        note(f"The edge {self._edge} is away: {why}. Trying again in {again_in_s:.1f} s.")

    def forwarded(self, done: Forwarded, *, acknowledged: bool) -> None:
        if self._as_json:
            emit(_shape(done, acknowledged))
        else:
            say(_line(done, acknowledged, self._forward))
            if self._verbose:
                for line in _details(done):
                    say(line)


def _shape(done: Forwarded, acknowledged: bool) -> dict[str, object]:
    delivery, result = done.delivery, done.result
    return {
        "event_id": delivery.event_id,
        "event_type": delivery.event_type,
        "attempt": delivery.attempt,
        "bytes": len(delivery.body),
        "status": result.status if isinstance(result, Answered) else None,
        "error": None if isinstance(result, Answered) else result.error,
        "took_ms": round(done.took_s * 1000, 1),
        "resent": done.resent,
        "acknowledged": acknowledged,
    }


def _line(done: Forwarded, acknowledged: bool, forward: str) -> str:
    """09:14:07  github.push  01a1e05b-…  7.4 kB → 200  12 ms"""
    delivery, result = done.delivery, done.result
    came = str(result.status) if isinstance(result, Answered) else f"no answer from {forward}: {cell(result.error)}"
    marks = [f"{done.took_s * 1000:.0f} ms"]
    if delivery.attempt > 1:
        marks.append(f"try {delivery.attempt}")
    if done.resent:
        marks.append("sent again by hand")
    elif not acknowledged:
        marks.append("the edge did not hear of it, and will deliver it again")
    what = f"{cell(delivery.event_type)}  {delivery.event_id}  {_size(len(delivery.body))}"
    return f"{time.strftime('%H:%M:%S')}  {what} → {came}  {', '.join(marks)}"


def _size(count: int) -> str:
    return f"{count} B" if count < 1000 else f"{count / 1000:.1f} kB"


def _details(done: Forwarded) -> list[str]:
    delivery, result = done.delivery, done.result
    lines = [f"    {name}: {cell(value)}" for name, value in redact_headers(delivery.headers).items()]
    lines += [f"    {line}" for line in _beginning(delivery.body)]
    if isinstance(result, Answered):
        lines.append(f"  ← {result.status}")
        lines += [f"    {name}: {cell(value)}" for name, value in redact_headers(result.headers).items()]
        lines += [f"    {line}" for line in _beginning(result.body)]
    return lines


def _beginning(body: bytes) -> list[str]:
    text = redact_text(body[: MAX_BODY_SHOWN_CHARS * 4].decode("utf-8", "replace"), MAX_BODY_SHOWN_CHARS)
    return ["".join(c if c.isprintable() else "·" for c in line) for line in text.splitlines()] if text else []
