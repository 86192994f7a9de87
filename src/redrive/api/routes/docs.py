"""The page at /docs and its style. No key is needed: it says what /openapi.json says."""

from functools import lru_cache
from importlib.resources import files

from fastapi import APIRouter, FastAPI, Request, Response

from redrive.api.docs.page import render

STYLE_PATH = "/docs/style.css"
# Nothing but the page itself and its style: no script, no picture, no frame around it.
POLICY = "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

router = APIRouter(include_in_schema=False)


@router.get("/docs")
async def docs(request: Request) -> Response:
    """Every operation with its parameters, examples and fields."""
    return Response(_page(request.app), media_type="text/html", headers={"content-security-policy": POLICY})


@router.get(STYLE_PATH)
async def style() -> Response:
    return Response(_style(), media_type="text/css")


@lru_cache(maxsize=1)
def _page(app: FastAPI) -> bytes:
    return render(app.openapi(), STYLE_PATH)


@lru_cache(maxsize=1)
def _style() -> bytes:
    return files("redrive.api.docs").joinpath("style.css").read_bytes()
