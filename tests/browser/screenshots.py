"""Pictures of the pages for docs/images: `make screenshots`, or of some `make screenshots ARGS="dead-letters groups"`.

Opens every page of browser.pages before an installation with a week of sample data, at three widths, in light and
dark, and writes docs/images/NAME-WIDTH-SCHEME.png. A page that had a fault is named at the end, and the exit code is 1;
the others are written all the same.
"""

import argparse
import asyncio
import io
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from PIL import Image

from browser.pages import PAGES, Place
from redrive.observe.logs import set_up_logs
from support import sample
from support.chromium import Scheme, Visit, open_chromium, visiting
from support.installation import Installation, installation
from support.layout import assert_fits
from support.receiver import open_receiver
from support.serve_sample import private_postgres

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "images"
SIZES = ((390, 844), (768, 1024), (1440, 900))
SCHEMES: Sequence[Scheme] = ("light", "dark")
COLOURS = 128
MAX_BYTES = 60_000
SETTLE_MS = 400  # what is live has come, and is drawn


async def main(names: Sequence[str]) -> int:
    set_up_logs("console", "critical", service="screenshots")
    FOLDER.mkdir(parents=True, exist_ok=True)
    chosen = [place for place in PAGES if not names or place.name in names]
    if unknown := set(names) - {place.name for place in PAGES}:
        print(f"no such page: {', '.join(sorted(unknown))}; there are {', '.join(place.name for place in PAGES)}")
        return 2
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(private_postgres())
        receiver = await stack.enter_async_context(open_receiver())
        redrive = await stack.enter_async_context(installation(url, smtp_url="smtp://127.0.0.1:9?starttls=none"))
        chromium = await stack.enter_async_context(open_chromium())
        await sample.live_through(redrive, receiver)
        await stack.enter_async_context(redrive.working(sample.HANDLERS))
        token = await redrive.session_token()
        troubles = []
        for place in chosen:
            try:
                async with visiting(chromium, redrive.base_url) as visit:
                    await _take(redrive, visit, place, token)
            except AssertionError as trouble:
                troubles.append(f"{place.name}: {trouble}")
        print("\n".join(troubles), file=sys.stderr)
    return 1 if troubles else 0


async def _take(redrive: Installation, visit: Visit, place: Place, token: str) -> None:
    path = await place.address(redrive.api)
    for width, height in SIZES:
        for scheme in SCHEMES:
            page = await visit.page(
                token=token if place.signed_in else None, width=width, height=height, scheme=scheme, calm=True
            )
            answer = await page.goto(path)
            assert answer is not None
            assert answer.ok, f"{path} answered {answer.status}"
            if place.act is not None:
                await place.act(page)
            await page.wait_for_timeout(SETTLE_MS)
            picture = small(await page.screenshot(animations="disabled", caret="hide"))
            (FOLDER / f"{place.name}-{width}-{scheme}.png").write_bytes(picture)
            print(f"{place.name}-{width}-{scheme}.png {len(picture) / 1000:.0f} kB")
            await assert_fits(page)
            await page.close()


def small(png: bytes) -> bytes:
    """The same picture with few colours; with fewer still where it is too large."""
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    colours = COLOURS
    while True:
        out = io.BytesIO()
        picture.quantize(colours, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
        if out.tell() <= MAX_BYTES or colours <= 16:
            return out.getvalue()
        colours //= 2


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="make screenshots", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="PAGE", help="only these pages")
    sys.exit(asyncio.run(main(parser.parse_args().names)))
