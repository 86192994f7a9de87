"""A log that nobody reads or takes stops nothing: writing returns soon, raises nothing, and says what is missing."""

import fcntl
import json
import os
import resource
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis.strategies import (
    DataObject,
    binary,
    booleans,
    characters,
    data,
    dictionaries,
    integers,
    lists,
    none,
    recursive,
    sampled_from,
    text,
)

from redrive.observe import standard_error
from redrive.observe.json_lines import encoded, encoded_lines
from redrive.observe.standard_error import FILE_PIECE_BYTES, PIECE_BYTES, StandardError

PIPE_BYTES = 4 * PIECE_BYTES
LINE = b"x" * 99 + b"\n"


def lost_line(n: int) -> bytes:
    return b"lost %d\n" % n


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, int]]:
    """One that holds little, and whose writer waits for the blink of an eye."""
    monkeypatch.setattr(standard_error, "PATIENCE_S", 0.01)
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    yield read, write
    for fd in (read, write):
        try:
            os.close(fd)
        except OSError:  # the test has
            continue


@pytest.mark.parametrize("waits", [True, False])
def test_a_pipe_that_nobody_reads_costs_lines_and_no_time(pipe: tuple[int, int], waits: bool) -> None:
    read, write = pipe
    os.set_blocking(write, waits)  # whoever shares it may have said that nobody is to wait
    counted: list[int] = []
    log = StandardError(write, lost_line, counted.append)
    began = time.monotonic()
    for _ in range(20):
        log.write(LINE * 100)
    assert time.monotonic() - began < 2
    taken = os.read(read, PIPE_BYTES)
    log.write(LINE)
    taken += os.read(read, PIPE_BYTES)
    *before, told, last = taken.splitlines(keepends=True)
    assert set(before) == {LINE}  # whole ones
    assert (told, last) == (lost_line(sum(counted)), LINE)
    assert sum(counted) == 2000 - len(before)


def test_a_line_longer_than_a_pipe_takes_is_written_whole_or_ended(pipe: tuple[int, int]) -> None:
    read, write = pipe
    log = StandardError(write, lost_line)
    long = b"y" * (PIPE_BYTES + 10) + b"\n"
    log.write(long)
    taken = os.read(read, PIPE_BYTES)
    assert long.startswith(taken)
    log.write(LINE)
    assert os.read(read, PIPE_BYTES) == b"\n" + lost_line(1) + LINE


def test_a_reader_that_is_gone_and_a_disk_that_is_full_are_nobody_s_trouble(pipe: tuple[int, int]) -> None:
    read, write = pipe
    os.close(read)
    StandardError(write, lost_line).write(LINE)
    full = os.open("/dev/full", os.O_WRONLY)
    StandardError(full, lost_line).write(LINE)
    os.close(full)


@contextmanager
def room(size: int) -> Iterator[None]:
    """Files are full when they are as long as this."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


written_lines = binary(max_size=50).map(lambda line: line.replace(b"\n", b"") + b"\n")


@given(writes=lists(lists(written_lines, min_size=1, max_size=10).map(b"".join), max_size=5), data=data())
def test_of_a_disk_that_is_full_exactly_the_lines_are_missing_that_are_counted(
    writes: list[bytes], data: DataObject
) -> None:
    said = b"".join(writes)
    size = data.draw(integers(0, len(said)))
    missing = said.count(b"\n") - said[:size].count(b"\n")
    with tempfile.TemporaryFile(buffering=0) as file:
        counted: list[int] = []
        log = StandardError(file.fileno(), lost_line, counted.append)
        log._piece_bytes = data.draw(sampled_from([16, FILE_PIECE_BYTES]))
        with room(size):
            for write in writes:
                log.write(write)
        assert sum(counted) == missing
        log.write(LINE)
        file.seek(0)
        ended = b"" if said[:size].endswith(b"\n") or not size else b"\n"
        assert file.read() == said[:size] + ended + (lost_line(missing) if missing else b"") + LINE


def test_what_is_written_to_a_file_at_once_stands_together_whoever_else_writes(tmp_path: Path) -> None:
    """One write each, not one of every few lines."""
    path, times, many = tmp_path / "log", 30, 1_000

    def write(line: bytes) -> None:
        with path.open("ab", buffering=0) as file:
            log = StandardError(file.fileno(), lost_line)
            for _ in range(times):
                log.write(line * many)

    writers = [threading.Thread(target=write, args=[bytes([n]) * 99 + b"\n"]) for n in b"ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    runs = [len(list(alike)) for _, alike in groupby(path.read_bytes().splitlines())]
    assert sum(runs) == 2 * times * many
    assert all(run % many == 0 for run in runs)


@given(
    lines=lists(binary(max_size=3 * PIECE_BYTES).map(lambda line: line.replace(b"\n", b"") + b"\n"), max_size=20),
    most=sampled_from([PIECE_BYTES, 2 * PIECE_BYTES]),
)
def test_pieces_are_whole_lines_that_are_taken_at_once(lines: list[bytes], most: int) -> None:
    pieces = list(standard_error._pieces(b"".join(lines), most))
    assert b"".join(pieces) == b"".join(lines)
    assert all(piece.endswith(b"\n") and (len(piece) <= most or piece.count(b"\n") == 1) for piece in pieces)


SHARED = {"event": "a: b", "service": "test", "level": "info"}


def test_a_line_is_encoded_whatever_is_in_it() -> None:
    odd = {"half": "\udcff", "huge": 2**70, "thing": object, "fine": 1}
    assert json.loads(encoded(odd))["fine"] == 1
    told = [json.loads(line) for line in encoded_lines([{"fine": 1}, odd, {}], SHARED).splitlines()]
    assert [line.get("fine") for line in told] == [1, 1, None]
    assert all(line.items() >= SHARED.items() for line in told)


facts = dictionaries(
    text().filter(lambda name: name not in SHARED),
    recursive(
        none() | booleans() | integers(-(2**53), 2**53) | text(characters(exclude_categories=())),
        lambda inner: lists(inner, max_size=2) | dictionaries(text(max_size=3), inner, max_size=2),
        max_leaves=4,
    ),
    max_size=4,
)


@given(lines=lists(facts, max_size=4))
def test_lines_that_are_encoded_together_are_each_its_own_facts_and_those_of_all(lines: list[dict[str, Any]]) -> None:
    given = deepcopy(lines)
    told = encoded_lines(lines, SHARED).splitlines(keepends=True)
    assert [list(json.loads(line).items()) for line in told] == [list((line | SHARED).items()) for line in given]
    assert all(line.endswith(b"}\n") for line in told)
    assert lines == given  # whoever says them may go on with them
