"""The document at /openapi.json, the page at /docs and its style. No key is needed.

The first two are written when somebody asks for them first, beside the other requests: it takes most of a second.
"""

import asyncio
from functools import lru_cache
from importlib.resources import files

import msgspec
from fastapi import APIRouter, FastAPI, Request, Response

from redrive.api.docs.page import render

STYLE_PATH = "/docs/style.css"
# Nothing but the page itself and its style: no script, no picture, no frame around it.
POLICY = "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

router = APIRouter(include_in_schema=False)


@router.get("/openapi.json")
async def document(request: Request) -> Response:
    """What there is to ask for, and what comes back."""
    return Response(await asyncio.to_thread(_document, request.app), media_type="application/json")


@router.get("/docs")
async def docs(request: Request) -> Response:
    """Every operation with its parameters, examples and fields."""
    page = await asyncio.to_thread(_page, request.app)
    return Response(page, media_type="text/html", headers={"content-security-policy": POLICY})


@router.get(STYLE_PATH)
async def style() -> Response:
    return Response(_style(), media_type="text/css")


@lru_cache(maxsize=1)
def _document(app: FastAPI) -> bytes:
    return msgspec.json.encode(app.openapi())


@lru_cache(maxsize=1)
def _page(app: FastAPI) -> bytes:
    return render(app.openapi(), STYLE_PATH)


@lru_cache(maxsize=1)
def _style() -> bytes:
    return files("redrive.api.docs").joinpath("style.css").read_bytes()
