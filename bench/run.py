"""Run the benchmarks: `python -m bench.run [--quick] [--only a,b] [--no-peers]`, or `make bench`.

Starts a private PostgreSQL, a receiver and every system in turn, interleaved, and stops them all at the end.
Prints the goals; unless quick, writes bench/results and docs/benchmarks.md. Loopback only.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import signal
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime

from bench.goals import Key, Results, judge
from bench.model import NotRun, Run
from bench.peers.base import Peer, Setup
from bench.peers.systems import peers
from bench.plots import number
from bench.postgres import postgres
from bench.receiver import receiving
from bench.report import goals_table, render, write_results
from bench.scenarios import FULL, QUICK, Scale, Step, steps

BUDGET_S = 550.0
OVERTIME_S = 30.0
"""What the last step may take beyond the budget, so that the whole stays under ten minutes."""
STEP_TIMEOUT_S = 150.0
MAX_REASON_CHARS = 200


def say(text: str) -> None:
    print(text, flush=True)


class Bench:
    def __init__(self, only: frozenset[str], scale: Scale, budget_s: float) -> None:
        self._only = only
        self._scale = scale
        self._ends_at = time.monotonic() + budget_s
        self.results = Results({}, {})

    async def run(self, chosen: list[Peer]) -> Mapping[str, object]:
        ready, refused = await self._set_up(chosen)
        try:
            async with postgres() as server, receiving() as receiver:
                plan = [step for step in steps(Setup(server, receiver), ready, self._scale) if self._wanted(step)]
                for name, why in refused.items():
                    self.results.not_run[("deliver", "webhook", name)] = why
                for number_of_round in range(max((step.rounds for step in plan), default=0)):
                    for step in plan:
                        if number_of_round < step.rounds:
                            await self._measure(step, number_of_round)
                return about(server.version)
        finally:
            for peer in ready:
                await peer.close()

    async def _set_up(self, chosen: list[Peer]) -> tuple[list[Peer], dict[str, str]]:
        ready, refused = [], {}
        for peer in chosen:
            try:
                await peer.setup()
            except NotRun as why:
                refused[peer.name] = str(why)
                say(f"{peer.name}: not run: {why}")
            else:
                ready.append(peer)
        return ready, refused

    def _wanted(self, step: Step) -> bool:
        return not self._only or not self._only.isdisjoint({step.scenario, step.variant, step.system})

    async def _measure(self, step: Step, number_of_round: int) -> None:
        key: Key = (step.scenario, step.variant, step.system)
        label = f"{step.scenario}, {step.variant}, {step.system}"
        if key in self.results.not_run:
            return
        if time.monotonic() > self._ends_at:
            self._refuse(step, f"the time for the whole run ({BUDGET_S:.0f} s) was up")
            return
        try:
            left_s = self._ends_at + OVERTIME_S - time.monotonic()
            async with asyncio.timeout(min(STEP_TIMEOUT_S, left_s)):
                found = await step.measure()
        except Exception as error:
            reason = " ".join(str(error).split())[:MAX_REASON_CHARS] or type(error).__name__
            say(f"{label}: not run: {reason}")
            self._refuse(step, reason)
            return
        runs = found if isinstance(found, tuple) else (found,)
        for variant, run in zip((step.variant, *step.also), runs, strict=True):
            self.results.runs.setdefault((step.scenario, variant, step.system), []).append(run)
            say(f"{step.scenario}, {variant}, {step.system}, round {number_of_round + 1}: {figures(run)}")

    def _refuse(self, step: Step, reason: str) -> None:
        """A step that failed is not tried again; what earlier rounds measured stays."""
        for variant in (step.variant, *step.also):
            self.results.not_run[(step.scenario, variant, step.system)] = reason


def figures(run: Run) -> str:
    extra = ", ".join(f"{name} {number(value)}" for name, value in run.extra.items() if value)
    return f"{number(run.per_s)}/s over {run.seconds:.1f} s" + (f" ({extra})" if extra else "")


def about(postgres_version: str) -> dict[str, object]:
    return {
        "taken_at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
        "postgres": postgres_version,
    }


async def _main(args: argparse.Namespace) -> None:
    loop, me = asyncio.get_running_loop(), asyncio.current_task()
    assert me is not None
    for sign in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sign, me.cancel)  # unwinds, so that all children are stopped
    only = frozenset(part.strip() for part in args.only.split(",") if part.strip())
    chosen = peers() if args.peers else []
    bench = Bench(only, QUICK if args.quick else FULL, BUDGET_S)
    started = time.monotonic()
    facts = await bench.run(chosen)
    say("")
    say("\n".join(goals_table(judge(bench.results))))
    say(f"\n{time.monotonic() - started:.0f} s")
    if not args.quick:
        write_results(bench.results, facts)
        say(f"written: bench/results, docs/{render(peers()).name}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.run", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round of everything; writes no files")
    parser.add_argument("--only", default="", help="scenarios, variants or systems, separated by commas")
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True, help="run the peers too")
    try:
        asyncio.run(_main(parser.parse_args()))
    except asyncio.CancelledError:
        sys.exit("stopped; everything that was started has been stopped too")


if __name__ == "__main__":
    main()
