"""The peers, pinned, with the best of the settings that were tried. Called by bench.run."""

from __future__ import annotations

from bench.peers.base import NodePeer, Peer, PostgresPeer
from bench.peers.celery_peer import CeleryPeer

AIOHTTP = ("aiohttp==3.14.5", "uvloop==0.23.0")


def peers() -> list[Peer]:
    return [
        PostgresPeer(
            name="pgqueuer",
            version="1.6.0",
            settings="batch_size 100, uvloop, aiohttp with 100 connections; retry delay 0",
            script="pgqueuer_worker.py",
            unsettled="SELECT count(*) FROM pgqueuer",
            pins=("pgqueuer[asyncpg]==1.6.0", *AIOHTTP),
        ),
        NodePeer(
            name="graphile-worker",
            version="0.17.3",
            settings="200 jobs at once, local queue of 500, batched completion; retry delay is fixed at e s",
            script="graphile_worker.mjs",
            unsettled="SELECT count(*) FROM graphile_worker._private_jobs",
            pins=("graphile-worker@0.17.3", "undici@7.30.2"),
        ),
        PostgresPeer(
            name="awa",
            version="0.6.9",
            settings="500 workers, claims of 512, uvloop, aiohttp; RetryAfter(0), promotion every 10 ms",
            script="awa_worker.py",
            unsettled=None,  # its rings drop finished jobs, so the receiver's last answer is the end
            pins=("awa-pg==0.6.9", *AIOHTTP),
        ),
        PostgresPeer(
            name="procrastinate",
            version="3.10.0",
            settings="concurrency 30, pool of 20, uvloop, aiohttp; retry wait 0",
            script="procrastinate_worker.py",
            unsettled="SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')",
            pins=("procrastinate==3.10.0", *AIOHTTP),
        ),
        CeleryPeer(),
    ]
