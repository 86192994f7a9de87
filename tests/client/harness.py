"""Raw servers on loopback, certificates, and a way to run a scenario under both event loops."""

import asyncio
import datetime
import functools
import inspect
import ipaddress
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from redrive.core.address import AddressRules, Ip, parse_target
from redrive.destinations.client import Client, Request, build_head

SCENARIO_LIMIT_S = 20.0
LOOPBACK = AddressRules.parse("127.0.0.0/8, ::1/128")
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"

Reader = asyncio.StreamReader
Writer = asyncio.StreamWriter
Handler = Callable[[Reader, Writer], Awaitable[None]]
Scenario = Callable[..., Coroutine[Any, Any, None]]


def on_both_loops(scenario: Scenario) -> Callable[..., None]:
    """Run the test under asyncio's own loop and under uvloop; an error that only the loop saw fails it too."""

    @pytest.mark.parametrize("loop_kind", ["asyncio", "uvloop"])
    def test(loop_kind: str, **arguments: object) -> None:
        outcome: list[BaseException | None] = []

        def run() -> None:
            try:
                factory = uvloop.new_event_loop if loop_kind == "uvloop" else asyncio.new_event_loop
                with asyncio.Runner(loop_factory=factory) as runner:
                    runner.run(_watched(scenario, arguments))
            except BaseException as error:  # noqa: BLE001 - carried over to the test's own thread
                outcome.append(error)
            else:
                outcome.append(None)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(SCENARIO_LIMIT_S + 5)
        assert outcome, "the scenario did not end"
        if outcome[0] is not None:
            raise outcome[0]

    functools.update_wrapper(test, scenario)
    signature = inspect.signature(scenario)
    loop_parameter = inspect.Parameter("loop_kind", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    # pytest finds fixtures by the signature: the scenario's own, and the loop it runs under.
    parameters = [loop_parameter, *signature.parameters.values()]
    test.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return test


async def _watched(scenario: Scenario, arguments: dict[str, object]) -> None:
    unhandled: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: unhandled.append(str(context)))
    async with asyncio.timeout(SCENARIO_LIMIT_S):
        await scenario(**arguments)
    assert unhandled == []


async def until(condition: Callable[[], bool], limit_s: float = 5.0) -> None:
    """Wait until the condition holds; fail after the limit."""
    async with asyncio.timeout(limit_s):
        while not condition():
            await asyncio.sleep(0.005)


async def read_request(reader: Reader) -> tuple[bytes, bytes]:
    """Head and body of one request. Raises IncompleteReadError at the end of the stream."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")
    )
    return head, await reader.readexactly(length)


class RawServer:
    """What a test's server saw."""

    def __init__(self, port: int = 0) -> None:
        self.port = port
        self.connections = 0
        self.requests: list[bytes] = []


@asynccontextmanager
async def serving(
    handler: Handler, *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> AsyncIterator[RawServer]:
    """Run the handler for every connection; close all of them in the end."""
    seen = RawServer()
    tasks: set[asyncio.Task[None]] = set()

    async def run(reader: Reader, writer: Writer) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        seen.connections += 1
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError, ssl.SSLError, asyncio.CancelledError):
                await handler(reader, writer)
        finally:
            writer.transport.abort()
            tasks.discard(task)

    server = await asyncio.start_server(run, host, 0, ssl=tls)
    seen.port = server.sockets[0].getsockname()[1]
    try:
        yield seen
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        if tasks:
            await asyncio.wait(set(tasks))


@asynccontextmanager
async def answering(*answers: bytes, close: bool = False, **options: Any) -> AsyncIterator[RawServer]:
    """Answer request after request on each connection with these bytes, the last one repeated."""

    async def handler(reader: Reader, writer: Writer) -> None:
        turn = 0
        while True:
            head, body = await read_request(reader)
            seen.requests.append(head + body)
            writer.write(answers[min(turn, len(answers) - 1)])
            turn += 1
            await writer.drain()
            if close:
                writer.close()
                return

    async with serving(handler, **options) as seen:
        yield seen


@asynccontextmanager
async def a_client(**options: Any) -> AsyncIterator[Client]:
    client = Client(**{"rules": LOOPBACK, **options})
    try:
        yield client
    finally:
        await client.aclose()


def post(port: int, body: bytes = b"{}", **options: Any) -> Request:
    url = options.pop("url", f"http://127.0.0.1:{port}/hook?token=s3cret")
    return Request(parse_target(url), build_head([("content-type", "application/json")]), body, **options)


class ScriptedNames:
    """A name server under the test's control: each lookup of a name takes its next answer, the last repeated."""

    def __init__(self, **answers: Sequence[Sequence[str]]) -> None:
        self.answers = {name.replace("_", "."): list(rows) for name, rows in answers.items()}
        self.lookups: list[str] = []

    async def resolve(self, host: str, port: int) -> Sequence[Ip]:
        self.lookups.append(host)
        rows = self.answers[host]
        row = rows.pop(0) if len(rows) > 1 else rows[0]
        return [ipaddress.ip_address(text) for text in row]


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority of the test's own."""

    pem: str
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def create(cls) -> "Authority":
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        builder = _certificate(name, name, key.public_key())
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        certificate = (
            builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .sign(key, hashes.SHA256())
        )
        return cls(certificate.public_bytes(serialization.Encoding.PEM).decode(), certificate, key)

    def server_files(self, folder: Path, *names: str) -> tuple[Path, Path]:
        """A certificate for these names or addresses, and its key, as files."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
        certificate = (
            _certificate(subject, self.certificate.subject, key.public_key())
            .add_extension(x509.SubjectAlternativeName([_alternative(name) for name in names]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), False)
            .sign(self.key, hashes.SHA256())
        )
        certificate_file, key_file = folder / f"{names[0]}.crt", folder / f"{names[0]}.key"
        certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return certificate_file, key_file

    def server_context(self, folder: Path, *names: str) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*self.server_files(folder, *names))
        return context


def _certificate(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
