"""Take pictures of the pages with a week of sample data.

`make screenshots` takes those that the documents show and writes them to docs/images. To look at pages,
`make screenshots ARGS="--all --folder /tmp/pages"` takes every page of browser.pages, or those that are named, at three
widths, in light and dark. A page that had a fault is named at the end, and the exit code is 1; the others are written
all the same.
"""

import argparse
import asyncio
import io
import re
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from PIL import Image

from browser.pages import PAGES, Place
from redrive.observe.logs import set_up_logs
from support import sample
from support.chromium import Scheme, Visit, open_chromium, visiting
from support.installation import Installation, installation
from support.layout import assert_fits
from support.receiver import open_receiver
from support.serve_sample import private_postgres

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "images"
SHOWN = re.compile(r"images/([a-z-]+)-(\d+)-(light|dark)\.png")
SIZES = ((390, 844), (768, 1024), (1440, 900))
SCHEMES: Sequence[Scheme] = ("light", "dark")
MAX_BYTES = 250_000  # of a picture that a document shows
SETTLE_MS = 400  # what is live has come, and is drawn


@dataclass(frozen=True, slots=True)
class Shot:
    place: Place
    width: int
    height: int
    scheme: Scheme

    @property
    def file_name(self) -> str:
        return f"{self.place.name}-{self.width}-{self.scheme}.png"


def shots() -> Sequence[Shot]:
    """Every page at every width, in light and dark."""
    return [Shot(place, width, height, scheme) for place in PAGES for width, height in SIZES for scheme in SCHEMES]


def shown_in_documents() -> set[str]:
    """The file names of the pictures of pages that a document shows."""
    documents = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return {
        f"{name}-{width}-{scheme}.png" for path in documents for name, width, scheme in SHOWN.findall(path.read_text())
    }


async def main(names: Sequence[str], folder: Path, *, every: bool) -> int:
    set_up_logs("console", "critical", service="screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    if unknown := set(names) - {place.name for place in PAGES}:
        print(f"no such page: {', '.join(sorted(unknown))}; there are {', '.join(place.name for place in PAGES)}")
        return 2
    shown = shown_in_documents()
    chosen = [
        shot for shot in shots() if (every or shot.file_name in shown) and (not names or shot.place.name in names)
    ]
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(private_postgres())
        receiver = await stack.enter_async_context(open_receiver())
        redrive = await stack.enter_async_context(installation(url, smtp_url="smtp://127.0.0.1:9?starttls=none"))
        chromium = await stack.enter_async_context(open_chromium())
        await sample.live_through(redrive, receiver)
        await stack.enter_async_context(redrive.working(sample.HANDLERS))
        owner = next(user for user in (await redrive.api.get("/v1/users"))["data"] if user["role"] == "OWNER")
        token = await redrive.session_token(user_id=UUID(owner["id"]))
        troubles = []
        for shot in chosen:
            try:
                async with visiting(chromium, redrive.base_url) as visit:
                    picture = await _take(redrive, visit, shot, token)
            except AssertionError as trouble:
                troubles.append(f"{shot.file_name}: {trouble}")
                continue
            (folder / shot.file_name).write_bytes(picture)
            print(f"{shot.file_name} {len(picture) / 1000:.0f} kB")
            if shot.file_name in shown and len(picture) > MAX_BYTES:
                troubles.append(f"{shot.file_name} has {len(picture)} bytes: more than {MAX_BYTES}")
        print("\n".join(troubles), file=sys.stderr)
    return 1 if troubles else 0


async def _take(redrive: Installation, visit: Visit, shot: Shot, token: str) -> bytes:
    path = await shot.place.address(redrive.api)
    page = await visit.page(
        token=token if shot.place.signed_in else None,
        width=shot.width,
        height=shot.height,
        scheme=shot.scheme,
        calm=True,
    )
    answer = await page.goto(path)
    assert answer is not None
    assert answer.ok, f"{path} answered {answer.status}"
    if shot.place.act is not None:
        await shot.place.act(page)
    await page.wait_for_timeout(SETTLE_MS)
    picture = await page.screenshot(animations="disabled", caret="hide")
    await assert_fits(page)
    await page.close()
    return small(picture)


def small(png: bytes) -> bytes:
    """The same picture, in full colour, in fewer bytes."""
    out = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").save(out, "PNG", optimize=True)
    return out.getvalue()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="make screenshots", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="PAGE", help="only these pages")
    parser.add_argument("--all", action="store_true", help="every page, not only those that documents show")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where to write them")
    args = parser.parse_args()
    sys.exit(asyncio.run(main(args.names, args.folder, every=args.all)))
