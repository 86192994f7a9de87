"""Fuzz what strangers control: the bytes of an answer and the text of a URL. Opens no sockets.

Run by hand: `python bench/fuzz_client.py -max_total_time=60` (needs `pip install atheris`; libFuzzer's options apply).
"""

import importlib
import sys
from contextlib import nullcontext
from typing import Any

try:
    atheris: Any = importlib.import_module("atheris")
except ImportError:
    atheris = None

OURS = ["redrive.core.address", "redrive.destinations.client.protocol"]
with atheris.instrument_imports(include=OURS) if atheris is not None else nullcontext():
    from redrive.core.address import BadUrl, parse_target
    from redrive.destinations.client.call import Answer, Call
    from redrive.destinations.client.errors import FailureKind, TransferError
    from redrive.destinations.client.messages import Request
    from redrive.destinations.client.phases import Opening
    from redrive.destinations.client.pool import Origin
    from redrive.destinations.client.protocol import MAX_HEAD_BYTES, Connection

REQUEST = Request(parse_target("http://fuzz/"), b"", b"")
CAP_BYTES = 64
MAX_PIECES = 24
# The parser is C and gives no coverage to follow, so the way past its first checks is laid out.
FRAGMENTS = [
    *(b"HTTP/1.1 %d X\r\n" % status for status in (100, 101, 103, 200, 204, 301, 304, 500)),
    b"HTTP/1.0 200 OK\r\n",
    b"HTTP/2.0 200 OK\r\n",
    b"RTSP/1.0 200 OK\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    *(b"content-length: %d\r\n" % length for length in (0, 3, CAP_BYTES, CAP_BYTES + 1)),
    b"transfer-encoding: chunked\r\n",
    b"transfer-encoding: gzip\r\n",
    b"connection: close\r\n",
    b"connection: upgrade\r\nupgrade: h2c\r\n",
    b"keep-alive: timeout=5\r\n",
    b"x: " + b"y" * 4000 + b"\r\n",
    b"\r\n",
    b"\r\n\r\n",
    b"abc",
    b"3\r\nabc\r\n",
    b"40;ext=1\r\n" + b"z" * 64 + b"\r\n",
    b"0\r\n",
    b"0\r\nx-trailer: 1\r\n\r\n",
]


class Wire:
    """Stands where the transport and the socket would: takes what is written and notes the end."""

    def __init__(self) -> None:
        self.aborted = False

    def write(self, data: bytes) -> None:
        assert data

    def abort(self) -> None:
        self.aborted = True

    def get_write_buffer_size(self) -> int:
        return 0


class Keeper:
    """Stands where the pool would, and holds the connection to its promises."""

    def __init__(self) -> None:
        self.released_times = 0
        self.lost_times = 0

    def released(self, connection: Connection) -> None:
        self.released_times += 1
        assert not self.lost_times, "a connection that is gone was given back"

    def lost(self, connection: Connection) -> None:
        self.lost_times += 1
        assert self.lost_times == 1, "a connection was lost twice"


def fuzz_answer(source: Any) -> None:
    keeper, wire = Keeper(), Wire()
    place = Origin("fuzz")
    connection = Connection(keeper, place, sock=wire, opening=Opening("http://fuzz", 0.0), cap_bytes=CAP_BYTES)  # type: ignore[arg-type]
    connection.connection_made(wire)  # type: ignore[arg-type]
    answers: list[Answer] = []
    call = Call(REQUEST, b"request", 1e18, answers.append)
    call.connect_ms = 1.0
    connection.start(call, 0.0)
    for _ in range(source.ConsumeIntInRange(1, MAX_PIECES)):
        if connection.closed:
            break
        connection.data_received(fuzzed_piece(source))
        if answers and not connection.closed:
            break
    if not answers:
        connection.expire() if source.ConsumeBool() else connection.eof_received()
    judge(answers, keeper, connection)
    connection.connection_lost(None)
    assert keeper.lost_times == 1


def fuzzed_piece(source: Any) -> bytes:
    """Whole fragments, several at once, fragments cut short, or noise."""
    match source.ConsumeIntInRange(0, 7):
        case 0:
            return bytes(source.ConsumeBytes(source.ConsumeIntInRange(0, 64)))
        case 1:
            fragment: bytes = source.PickValueInList(FRAGMENTS)
            return fragment[: source.ConsumeIntInRange(0, 20)]
        case 2 | 3 | 4:
            return b"".join(source.PickValueInList(FRAGMENTS) for _ in range(source.ConsumeIntInRange(1, 6)))
        case _:
            return bytes(source.PickValueInList(FRAGMENTS))


def judge(answers: list[Answer], keeper: Keeper, connection: Connection) -> None:
    assert len(answers) == 1, "an exchange did not end, or ended twice"
    answer = answers[0]
    if isinstance(answer, Exception):
        assert isinstance(answer, TransferError)
        assert answer.sent
        assert answer.kind in (FailureKind.MALFORMED, FailureKind.RESET, FailureKind.TIMEOUT)
        assert connection.closed
    else:
        assert 200 <= answer.status <= 999
        assert len(answer.body) <= CAP_BYTES
        assert sum(len(name) + len(value) for name, value in answer.headers) <= MAX_HEAD_BYTES
        assert connection.closed or (answer.body_error is None and not answer.truncated)
    assert keeper.released_times + keeper.lost_times == 1


def fuzz_url(source: Any) -> None:
    try:
        target = parse_target("http://" + source.ConsumeUnicode(120))
    except BadUrl:
        return
    line = f"{target.host_header}{target.path_and_query}"
    assert line.isascii()
    assert line.isprintable()
    assert not set(line) & set(" \\#")
    assert not set(target.host) & set("@%/?[]")
    assert 1 <= target.port <= 65535


def main() -> int:
    if atheris is None:
        print("atheris is not installed: nothing was fuzzed. `pip install atheris` and run again.")
        return 0

    def one_input(data: bytes) -> None:
        source = atheris.FuzzedDataProvider(data)
        fuzz_url(source) if source.ConsumeIntInRange(0, 9) == 0 else fuzz_answer(source)

    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
