"""The archive of what was removed: a folder for each org, a file for each day, a line of JSON for each thing.

Touches that folder only. Called by retention before a batch is removed.
"""

import asyncio
import os
import re
import threading
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType

import msgspec

from redrive.core.redact import redact_json
from redrive.core.sweep import SweptOrg
from redrive.store.db import Record

WRITE_BYTES = 1_048_576  # gathered before they are written

_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_LOOKS_LIKE_AN_ID = re.compile(r"[0-9A-Fa-f]{8}-[0-9A-Fa-f-]{27}")
_BROKER_JSON = ("properties", "deaths", "details")
_LINE_ENDS = bytes.maketrans(b"\r\n", b"  ")


class ArchiveError(Exception):
    """The archive cannot be written: what was to go stays."""


class Archive:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def keep(self, org: SweptOrg, rows: AsyncIterator[Record]) -> None:
        """Append these rows and see to it that they are on disk; ArchiveError where they are not."""
        path = self._folder / folder_name(org) / f"{org.now:%Y-%m-%d}.ndjson"
        try:
            file = await asyncio.to_thread(_File, path)
            with file:
                gathered: list[bytes] = []
                size = 0
                async for row in rows:
                    gathered.append(line_of(row))
                    size += len(gathered[-1])
                    if size >= WRITE_BYTES:
                        await asyncio.to_thread(file.write, b"".join(gathered))
                        gathered, size = [], 0
                await asyncio.to_thread(file.write, b"".join(gathered), is_last=True)
        except OSError as error:
            raise ArchiveError(
                f"The archive {path} cannot be written: {error.strerror}. Nothing was removed; make room or set "
                "REDRIVE_ARCHIVE_DIR to another folder."
            ) from error


def folder_name(org: SweptOrg) -> str:
    """The org's name where it can be one of a folder, else its id."""
    plain = _PLAIN_NAME.fullmatch(org.name) and not _LOOKS_LIKE_AN_ID.fullmatch(org.name)
    return org.name if plain else str(org.org_id)


def line_of(row: Record) -> bytes:
    """One thing. Bytes stand as they are where they are JSON or text, else in base64."""
    shape: dict[str, object] = {"record": row["record"], **msgspec.json.decode(row["columns"], type=dict[str, object])}
    body: bytes | None = row["bytes"]
    if row["record"] == "event":
        assert body is not None
        shape |= _payload(body)
    elif row["record"] == "edit" and body is not None:
        shape |= _payload(body)
    elif row["record"] == "attempt":
        shape |= _text("response_body", body)
    elif row["record"] == "broker_message":
        # Headers may be credentials, as those of an edit.
        shape |= {name: redact_json(text) for name in _BROKER_JSON if isinstance(text := shape[name], str)}
    return msgspec.json.encode(shape) + b"\n"


def _payload(body: bytes) -> dict[str, object]:
    try:
        body.decode("utf-8")
        msgspec.json.decode(body)
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        return {"payload_base64": b64encode(body).decode()}
    # Line ends stand between its parts only, never in a text: blanks mean the same.
    return {"payload": msgspec.Raw(body.translate(_LINE_ENDS))}


def _text(name: str, body: bytes | None) -> dict[str, object]:
    if body is None:
        return {name: None}
    try:
        return {name: body.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(body).decode()}


class _File:
    """A file that is appended to by one janitor at a time. What was not finished is taken back.

    It is written in threads, which go on when whoever waits for them is cancelled: the lock keeps them from a file that
    is closed, and whose number may be another's by then.
    """

    def __init__(self, path: Path) -> None:
        is_new = not path.exists()
        for folder in (path.parent.parent, path.parent):  # each with the mode: those above it would not get it
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self._begin = os.fstat(self._descriptor).st_size
        self._is_finished = self._is_closed = False
        if is_new:
            _sync_folder(path.parent)
            _sync_folder(path.parent.parent)
        # A crash may have left half a line: what follows begins a new one.
        if self._begin and os.pread(self._descriptor, 1, self._begin - 1) != b"\n":
            self.write(b"\n")

    def write(self, data: bytes, *, is_last: bool = False) -> None:
        left = memoryview(data)
        with self._lock:
            if self._is_closed:
                return
            while left:
                left = left[os.write(self._descriptor, left) :]
            if is_last:
                os.fsync(self._descriptor)
                self._is_finished = True

    def __enter__(self) -> "_File":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with self._lock:
            self._is_closed = True
            try:
                if not self._is_finished:
                    os.ftruncate(self._descriptor, self._begin)
            finally:
                os.close(self._descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
