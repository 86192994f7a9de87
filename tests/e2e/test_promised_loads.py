"""The load tests that a specification asks for are cases of the bench, run here with a tenth of the load."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
CASES = ("failures", "status at once", "status spread", "failed inbox")
MAX_S = 240.0


@pytest.mark.timeout(MAX_S + 30)
async def test_c20_the_promised_load_tests_can_be_repeated() -> None:
    """Each case checks its own result: all failures are scheduled, all clients answered, no event missed or doubled."""
    bench = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.promises", "--small", cwd=ROOT, stdout=PIPE, stderr=STDOUT
    )
    try:
        printed = (await asyncio.wait_for(bench.communicate(), MAX_S))[0].decode()
    finally:
        if bench.returncode is None:
            bench.terminate()  # it stops what it started
            await bench.wait()
    assert bench.returncode == 0, printed
    for case in CASES:
        assert f"promises, {case}: " in printed, printed
        assert f"promises, {case}: failed" not in printed, printed


def test_c20_the_figures_of_the_promised_load_tests_are_in_the_docs() -> None:
    rows = json.loads((ROOT / "bench/results/promises.json").read_text())["rows"]
    assert {row["variant"] for row in rows} == set(CASES)
    page = (ROOT / "docs/benchmarks.md").read_text()
    section = page.partition("## Load tests that were promised\n")[2].partition("\n## ")[0]
    assert "`python -m bench.promises`" in section
    for of in ("1 000 deliveries fail at once", "10 000 clients spread", "10 000 clients at the same", "10 000 events"):
        assert of in section
