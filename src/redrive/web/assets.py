"""Our own scripts and styles, as they are served: read once, packed once, named by their content.

Their address changes with any of them, so browsers keep them for good and modules find each other by relative names.
"""

import gzip
import hashlib
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from mimetypes import guess_type

from fastapi import APIRouter, Request, Response

from redrive.api.problems import not_found

KEEP = "public, max-age=31536000, immutable"
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True)
class Asset:
    media_type: str
    plain: bytes
    packed: bytes


@lru_cache(maxsize=1)
def assets() -> dict[str, Asset]:
    found = {}
    for file in files("redrive.web").joinpath("static").iterdir():
        plain = file.read_bytes()
        suffix = "." + file.name.rpartition(".")[2]
        media_type = _TYPES.get(suffix) or guess_type(file.name)[0] or "application/octet-stream"
        found[file.name] = Asset(media_type, plain, gzip.compress(plain, 9, mtime=0))
    return found


@lru_cache(maxsize=1)
def edition() -> str:
    """A name for all of them together."""
    digest = hashlib.sha256()
    for name, asset in sorted(assets().items()):
        digest.update(f"{name} {len(asset.plain)} ".encode() + asset.plain)
    return digest.hexdigest()[:12]


def address_of(name: str) -> str:
    if name not in assets():
        raise KeyError(name)
    return f"/static/{edition()}/{name}"


@router.get("/static/{of_edition}/{name}")
async def static_file(of_edition: str, name: str, request: Request) -> Response:
    """A page of an edition before asks for files that are gone: it must be loaded again, not be given others."""
    asset = assets().get(name) if of_edition == edition() else None
    if asset is None:
        raise not_found("file")
    return packed_response(request, asset.plain, asset.media_type, {"cache-control": KEEP}, packed=asset.packed)


def packed_response(
    request: Request,
    plain: bytes,
    media_type: str,
    headers: dict[str, str],
    *,
    status: int = 200,
    packed: bytes | None = None,
) -> Response:
    """gzip for those who take it."""
    headers = {**headers, "vary": "accept-encoding"}
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(plain, status, headers, media_type)
    headers["content-encoding"] = "gzip"
    return Response(gzip.compress(plain, 5) if packed is None else packed, status, headers, media_type)
