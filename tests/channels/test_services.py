"""apprise behind the guard: which services are used, what arrives at them, and what a stranger's cannot do to us."""

import asyncio
import gzip
import logging
import socket
import ssl
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import requests
from apprise.manager_plugins import NotificationManager

from client.harness import Authority
from redrive.core.address import AddressRules
from redrive.core.channels import LOCAL_SERVICES
from redrive.core.notice_text import Told
from redrive.core.outcome import Category, Failure, Outcome, Success
from redrive.destinations.guard import Refused, Watch, guarded
from redrive.destinations.services import MAX_ANSWER_BYTES, is_by_http, names_of, notify, problem_of
from support.holding import HoldingReceiver
from support.receiver import RESET, Answer, Step

OPEN = AddressRules.parse("127.0.0.0/8")
TOKEN = "canarycanarycanarycanary12"
SAID = Told("[Redrive default] ERROR: No worker is at work", "No worker is at work. It is so since noon.", "error")


async def told(url: str, said: Told = SAID) -> Outcome:
    watch = Watch(OPEN, time.monotonic() + 10)
    try:
        return await asyncio.to_thread(notify, url, said, watch)
    finally:
        watch.cut()


async def test_a_message_arrives_whatever_the_service_speaks(receiver: HoldingReceiver) -> None:
    here = f"127.0.0.1:{receiver.port}"
    for url, way in (
        (f"xml://{here}/xml", "/xml"),
        (f"form://{here}/form", "/form"),
        (f"ntfy://{here}/alerts", "/"),
        (f"gotify://{here}/{TOKEN}", "/message"),
        (f"mmost://{here}/{TOKEN}", f"/hooks/{TOKEN}"),
    ):
        assert await told(url) == Success(), url
        sent = receiver.requests[-1]
        assert sent.path == way
        words = sent.body.decode().replace("+", " ")
        assert "No worker is at work. It is so since noon." in words, url
        assert "ERROR" in words, url


@pytest.mark.parametrize(
    ("url", "targets"),
    [
        ("slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#ops/#other", 2),
        ("ntfy://chat.example/a/b/c", 3),
        ("ntfy://chat.example/a/b?retry=2", 2),
        ("slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#ops", 1),
        ("slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ", 1),
        ("ntfy://chat.example/a?retry=2", 1),
        ("json://chat.example/a/b/c?retry=1", 1),
        ("pover://" + "u" * 30 + "@" + "t" * 30 + "/phone?priority=emergency&retry=60&expire=600", 1),
    ],
)
def test_a_url_has_one_target(url: str, targets: int) -> None:
    why = problem_of(url, Watch(OPEN))
    assert why == (f"has {targets} targets: make an endpoint for each" if targets > 1 else None)


@pytest.mark.parametrize(
    ("url", "answers", "possible_duplicate"),
    [
        ("mmost://{}?channels=told,failing", [200, 500], True),
        ("mmost://{}?channels=failing,told", [500, 200], True),
        ("mmost://{}?channels=failing,failing-too", [500, 503], False),
        ("json://{}", [500], False),
        ("json://{}", [429], False),
        ("json://{}", [RESET], True),
    ],
)
async def test_whoever_may_have_been_told_before_a_failure_may_be_told_twice(
    receiver: HoldingReceiver, url: str, answers: list[Step], possible_duplicate: bool
) -> None:
    receiver.script(*answers)
    outcome = await told(url.format(f"127.0.0.1:{receiver.port}/{TOKEN}"))
    assert isinstance(outcome, Failure)
    assert outcome.possible_duplicate is possible_duplicate


async def test_who_could_not_be_reached_was_told_nothing(tmp_path: Path) -> None:
    refused = await told("json://127.0.0.1:9/x")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*Authority.create().server_files(tmp_path, "localhost"))
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    async with server:
        distrusted = await told(f"jsons://127.0.0.1:{server.sockets[0].getsockname()[1]}/x")
    for outcome in (refused, distrusted):
        assert isinstance(outcome, Failure)
        assert (outcome.category, outcome.possible_duplicate) == (Category.NETWORK, False)


async def test_of_a_text_that_is_longer_than_a_service_takes_it_gets_the_beginning(receiver: HoldingReceiver) -> None:
    url = f"mmost://127.0.0.1:{receiver.port}/{TOKEN}"
    assert await told(url, Told("Long", "word " * 1_600)) == Success()
    (sent,) = receiver.requests
    assert 3_000 < len(sent.body) < 4_500


async def test_a_request_is_one_request_and_its_answer_no_larger_than_anybody_needs(
    receiver: HoldingReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = gzip.compress(bytes(20 * MAX_ANSWER_BYTES))
    receiver.script(
        Answer(200, b"x" * (2 * MAX_ANSWER_BYTES)),
        Answer(200, packed, headers={"content-encoding": "gzip"}),
        Answer(302, headers={"location": receiver.url_of("/elsewhere")}),
    )
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)

    def ask() -> list[requests.Response]:
        with guarded(Watch(OPEN)), requests.Session() as session:
            asked = requests.Request("GET", receiver.url).prepare()
            return [requests.get(receiver.url, timeout=9), requests.get(receiver.url, timeout=9), session.send(asked)]

    large, bomb, elsewhere = await asyncio.to_thread(ask)
    assert len(large.content) == MAX_ANSWER_BYTES
    assert bomb.content == packed
    assert elsewhere.status_code == 302
    assert receiver.of_path("/elsewhere") == []
    assert {request.headers["accept-encoding"] for request in receiver.requests[:2]} == {"identity"}


async def test_a_service_that_hangs_behind_tls_loses_its_connection_and_the_thread_ends(tmp_path: Path) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*Authority.create().server_files(tmp_path, "localhost"))
    reached = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        reached.set()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    watch = Watch(OPEN)
    thread = threading.Thread(
        target=partial(notify, f"jsons://127.0.0.1:{port}/?verify=no&rto=60", SAID, watch), daemon=True
    )
    thread.start()
    async with server:
        async with asyncio.timeout(10):
            await reached.wait()
        watch.cut()
        await asyncio.to_thread(thread.join, 5)
        assert not thread.is_alive()


async def test_an_address_that_is_refused_hides_nothing_of_what_another_of_its_host_said(
    receiver: HoldingReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def both(_host: object, port: object, *_: object, **__: object) -> list[Any]:
        found = ((socket.AF_INET6, ("::1", port, 0, 0)), (socket.AF_INET, ("127.0.0.1", port)))
        return [(family, socket.SOCK_STREAM, 6, "", place) for family, place in found]

    receiver.usual = 503
    monkeypatch.setattr(socket, "getaddrinfo", both)
    outcome = await told(f"json://chat.example:{receiver.port}/")
    assert isinstance(outcome, Failure)
    assert outcome.category is Category.SERVER_ERROR


async def test_what_a_library_below_says_of_a_url_is_in_no_log(
    receiver: HoldingReceiver, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    receiver.usual = Answer(200, headers={"x-odd": "a\r\nthis is no header"})
    with caplog.at_level(logging.DEBUG):
        assert await told(f"json://127.0.0.1:{receiver.port}/canary") == Success()
    assert "canary" not in caplog.text
    assert "canary" not in "".join(capfd.readouterr())


def test_what_is_not_reached_by_http_is_not_used_and_refused_by_its_name() -> None:
    manager: Any = NotificationManager
    services = set(manager().plugins())
    by_http = {kind for kind in services if is_by_http(kind)}
    names = set().union(*map(names_of, services - by_http))
    assert names <= LOCAL_SERVICES
    assert {"dbus", "gnome", "glib", "macosx", "windows", "syslog", "rsyslog", "growl", "mailto", "mqtt"} <= names
    known = set().union(*map(names_of, by_http))
    assert {"slack", "workflows", "tgram", "discord", "pagerduty", "opsgenie", "matrix", "ntfy", "fcm"} <= known


def test_inside_a_guarded_call_nobody_reads_settings_starts_threads_or_sleeps_beyond_its_end() -> None:
    beside_python = Path(sys.prefix) / "redrive.env"
    with guarded(Watch(OPEN, time.monotonic() + 5)):
        for forbidden in (
            beside_python.read_text,
            Path("/proc/self/environ").read_bytes,
            lambda: sys.audit("_thread.start_new_thread", print, (), {}),
            lambda: sys.audit("sqlite3.connect", beside_python),
            lambda: socket.socket().bind(("127.0.0.1", 0)),
            lambda: time.sleep(60),
        ):
            with pytest.raises(Refused):
                forbidden()
        time.sleep(0.001)
        wrapped = ssl.create_default_context().wrap_socket(socket.socket(), server_hostname="a.example")
        with wrapped, pytest.raises(ConnectionRefusedError):
            wrapped.connect(("127.0.0.1", 9))
    time.sleep(0.001)
