"""Percentiles are within 5 % of the true value at any latency, and one number wherever the same window is shown."""

import math
import random
import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.async_api import Page

from redrive.core.alerts import RULES, read_terms
from redrive.store.alert_rounds import AlertRounds
from redrive.store.alerts import put_rule
from redrive.store.rollups import Roller
from support.alerts import EVERY_S
from support.engine import PERSON, Engine, ManualClock, Shared, engine_by
from support.installation import Installation

from .conftest import SignedIn

MOST = 2_500
SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
UNITS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0}
DISTRIBUTIONS: dict[str, Callable[[random.Random], float]] = {
    "steps of a policy": lambda chance: chance.choice((60, 300, 900)) * chance.uniform(1.001, 1.012),
    "milliseconds": lambda chance: chance.lognormvariate(math.log(0.040), 0.8),
    "minutes to days": lambda chance: 60 * 10 ** chance.uniform(0, 4),
    "two humps": lambda chance: abs(chance.gauss(0.2, 0.05)) if chance.random() < 0.94 else chance.gauss(64, 2),
}


def true_percentile(seconds: list[float], share: float) -> float:
    return sorted(seconds)[math.ceil(share * len(seconds)) - 1]


def seconds_in(text: str) -> float:
    return sum(float(n) * UNITS[unit] for n, unit in re.findall(r"([\d.]+) (ms|s|min|h|d)\b", text))


async def deliver(engine: Engine, seconds: list[float]) -> None:
    """As many deliveries at the first attempt, that took so long from when their event came."""
    await engine.accept_many(len(seconds))
    ids = [row["id"] for row in await engine.sql.fetch("SELECT id FROM redrive.task WHERE open")]
    await engine.sql.execute(
        """UPDATE redrive.task t SET received_at = $3::timestamptz - make_interval(secs => d.seconds)
             FROM unnest($1::uuid[], $2::float8[]) AS d(id, seconds) WHERE t.id = d.id""",
        ids,
        seconds,
        engine.clock.now(),
    )
    for _ in range(0, len(seconds), 500):
        await engine.succeed_all(await engine.claim(500))


async def shown_on(page: Page) -> dict[str, dict[str, str]]:
    """The percentiles of the tile, and of the table's rows."""
    await page.goto("/dashboard?window=1h")
    tile = await page.locator("#time-to-delivery .legend").inner_text()
    found = {"tile": dict(re.findall(r"(p\d\d)\s+([\d.]+ (?:ms|s|min|h|d)(?: \d+ (?:s|min|h))?)", tile))}
    for name in ("billing", "everything"):
        row = page.locator("#outcomes tbody tr").filter(has_text=name)
        found[name] = {share: await row.locator(f"td[data-label={share}]").inner_text() for share in SHARES}
    return found


@pytest.mark.parametrize("name", DISTRIBUTIONS)
async def test_c15_percentiles_are_within_5_percent_and_equal_in_tile_table_api_and_alert(
    installation: Installation, shared_database: Shared, clock: ManualClock, signed_in: SignedIn, name: str
) -> None:
    chance = random.Random(name)
    seconds = [max(0.001, DISTRIBUTIONS[name](chance)) for _ in range(MOST)]
    engine = await engine_by(shared_database.ways, clock)
    await engine.endpoint("billing")
    await deliver(engine, seconds)
    await Roller(engine.db, clock).roll(3)  # some of it; the rest is read from the tally
    analytics: dict[str, Any] = (await installation.api.get("/v1/stats", window="1h", by="endpoint"))["analytics"]
    told = analytics["whole"]["time_to_delivery_s"]
    for share, part in SHARES.items():
        assert told[share] == pytest.approx(true_percentile(seconds, part), rel=0.05)
    assert analytics["keys"][0]["time_to_delivery_s"] == told
    assert told["p95_without_retries"] == told["p95"]

    shown = await shown_on(await signed_in())
    assert shown["tile"] == shown["billing"] == shown["everything"]
    for share, part in SHARES.items():
        assert seconds_in(shown["tile"][share]) == pytest.approx(true_percentile(seconds, part), rel=0.05)

    async with engine.app.tenant(engine.org_id) as session:
        terms = read_terms(RULES["slow_delivery"], {"target_s": 0.1, "window_s": 3_600})
        await put_rule(session, RULES["slow_delivery"], terms, PERSON, clock)
    clock.advance(EVERY_S)
    await AlertRounds(engine.db, clock, every_s=EVERY_S).look()
    rules = (await installation.api.get("/v1/alerts/rules"))["data"]
    (reading,) = next(rule["readings"] for rule in rules if rule["rule"] == "slow_delivery")
    assert reading["saw"]["p95_s"] == told["p95"]
    (alert,) = (await installation.api.get("/v1/alerts", state="firing", rule="slow_delivery"))["data"]
    assert f"is {shown['tile']['p95']}, and should be 0.1 s at most" in alert["text"]
