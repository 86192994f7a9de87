"""Seals what must not lie in the database in the clear: endpoint secrets and custom headers.

AES-256-GCM. The owner's name is bound in, so that a sealed value cannot be moved to another row.
"""

import hashlib
import os
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_NONCE_BYTES = 12
_CHECK = b"redrive seal check"


class SealError(Exception):
    """A sealed value that this key does not open."""


class Sealer:
    def __init__(self, key: bytes) -> None:
        if len(key) != 32:
            raise ValueError("a sealing key has 32 bytes")
        self._aead = AESGCM(key)
        self.cursor_key = hashlib.sha256(b"redrive cursors" + key).digest()

    @classmethod
    def from_passphrase(cls, secret: str) -> "Sealer":
        """From a setting: any text of good length."""
        return cls(hashlib.sha256(b"redrive sealing key" + secret.encode()).digest())

    @classmethod
    def from_file(cls, path: Path) -> "Sealer":
        """From a file that is made, readable by its owner only, where there is none."""
        try:
            handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except FileExistsError:
            return cls(bytes.fromhex(path.read_text().strip()))
        with os.fdopen(handle, "w") as file:
            file.write(os.urandom(32).hex())
            file.flush()
            os.fsync(file.fileno())
        return cls(bytes.fromhex(path.read_text().strip()))

    def seal(self, value: bytes, owner: str) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._aead.encrypt(nonce, value, owner.encode())

    def unseal(self, sealed: bytes, owner: str) -> bytes:
        try:
            return self._aead.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], owner.encode())
        except (InvalidTag, ValueError):  # ValueError: too short to be a sealed value
            raise SealError(
                "A stored secret cannot be opened with this installation's key. Start with the REDRIVE_SECRET_KEY "
                "(or the data folder's secret.key) that it was stored under."
            ) from None

    def proof(self) -> bytes:
        return self.seal(_CHECK, "installation")

    def proves(self, proof: bytes) -> bool:
        try:
            return self.unseal(proof, "installation") == _CHECK
        except SealError:
            return False
