"""A bench that is run by itself: `--small` for a look of some seconds, `--rounds`; else its results are written.

Used by bench.order, bench.workflows, bench.fairness, bench.recovery and bench.rabbitmq, which `make bench` has no time
for, and by bench.pages.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import redrive
from bench.goals import Results, Verdict, judge
from bench.model import Run
from bench.peers.systems import peers
from bench.postgres import BenchPostgres, postgres
from bench.processes import ProcessError
from bench.report import goals_table, render, write_results
from bench.run import MAX_REASON_CHARS, about, figures, say
from bench.scenarios import OURS


class Measured:
    """Runs by variant, said as they come."""

    def __init__(self, scenario: str) -> None:
        self._scenario = scenario
        self.results = Results({}, {})

    def note(self, variant: str, run: Run, system: str = OURS) -> None:
        self.results.runs.setdefault((self._scenario, variant, system), []).append(run)
        say(f"{self._named(variant, system)}: {figures(run)}")

    async def attempt(self, variant: str, work: Awaitable[Run], system: str = OURS) -> None:
        """Note its run; one that failed is said, with why, and the others go on."""
        try:
            self.note(variant, await work, system)
        except ProcessError as why:
            self.refuse(variant, str(why), system)

    def refuse(self, variant: str, why: str, system: str = OURS) -> None:
        self.results.not_run[(self._scenario, variant, system)] = why[:MAX_REASON_CHARS]
        say(f"{self._named(variant, system)}: failed: {why}")

    def compare(self, variant: str, base: str, keys: Sequence[str], *, against: str = OURS) -> None:
        """Says the ratios of the last run of a variant to that of another, or of another system."""
        places = [(variant, OURS), (base, against)]
        runs = [self.results.of(self._scenario, *place) for place in places]
        if places[0] == places[1] or not all(runs):
            return
        over, under = (of_one[-1] for of_one in runs)
        ratios = (f"{key} × {over.value(key) / under.value(key):.2f}" for key in keys if under.value(key))
        say(f"{self._scenario}, {variant} against {base if against == OURS else against}: {', '.join(ratios)}")

    def _named(self, variant: str, system: str) -> str:
        return ", ".join([self._scenario, variant, *([system] if system != OURS else [])])


Measure = Callable[[BenchPostgres, bool, Measured], Awaitable[None]]
"""Handed a server, whether small, and where to note runs."""


def by_itself(scenario: str, parser: argparse.ArgumentParser, measure: Measure, *, rounds: int = 1) -> None:
    parser.add_argument("--small", "--quick", action="store_true", help="a look of some seconds; writes no files")
    parser.add_argument("--rounds", type=int, default=rounds)
    args = parser.parse_args()
    try:
        asyncio.run(_run(scenario, measure, small=args.small, rounds=args.rounds))
    except asyncio.CancelledError:
        sys.exit("stopped; everything that was started has been stopped too")


async def _run(scenario: str, measure: Measure, *, small: bool, rounds: int) -> None:
    loop, me = asyncio.get_running_loop(), asyncio.current_task()
    assert me is not None
    for sign in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sign, me.cancel)  # unwinds, so that all children are stopped
    began = time.monotonic()
    found = Measured(scenario)
    say(f"Redrive from {Path(redrive.__file__).parent}")
    async with postgres() as server:
        for _ in range(rounds):
            await measure(server, small, found)
        facts = about(server.version)
    ours = [outcome for outcome in judge(found.results) if outcome.verdict is not Verdict.NOT_RUN]
    if ours:
        say("\n" + "\n".join(goals_table(ours)))
    say(f"\n{time.monotonic() - began:.0f} s")
    if not small:
        write_results(found.results, facts)
        say(f"written: bench/results/{scenario}.json, docs/{render(peers()).name}")
