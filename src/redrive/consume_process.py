"""Puts the process of `redrive consume` together: the consumers of an app, each with its policy.

Without a database the names of policies are those of the presets; with one they are what is stored there when the
process starts. Either way MAX_RETRIES and the like of its environment apply.
"""

import asyncio
import random
from collections.abc import Mapping, Sequence

from redrive.core.broker import ConsumerSpec
from redrive.core.delay_queues import UnusablePolicy
from redrive.core.policy import Policy
from redrive.core.presets import PresetOverrides, overridden, presets
from redrive.observe.exposition import ProcessNumbers, write
from redrive.observe.metrics_server import serving_metrics
from redrive.observe.process_metrics import BUILD, OF_CONSUMERS, ConsumerNotes
from redrive.settings import Settings
from redrive.sources.consumer import Consumer
from redrive.store.db import Database
from redrive.store.orgs import find_org
from redrive.store.policies import get_policy, policy_of
from redrive.version import __version__


class NoPolicy(Exception):
    """A consumer's policy is not known, or cannot be used. The message says which, and what to do."""


async def run_consumers(
    settings: Settings, specs: Sequence[ConsumerSpec], policies: Mapping[str, Policy], stop: asyncio.Event
) -> None:
    """Consume until `stop`, or until one of them cannot: then all end."""
    consumers = [_consumer(settings, spec, policies) for spec in specs]
    own = ProcessNumbers("consume", OF_CONSUMERS)
    BUILD.ask(lambda: 1, (__version__,))

    async def why_not_ready() -> str | None:
        away = [consumer.queue for consumer in consumers if not consumer.is_consuming]
        return f"Not consuming: {', '.join(away)}." if away else None

    async with (
        serving_metrics(
            lambda accept: write([own], accept), why_not_ready, host=settings.metrics_host, port=settings.metrics_port
        ),
        asyncio.TaskGroup() as group,
    ):
        for consumer in consumers:
            group.create_task(consumer.run(stop))


def preset_policies(settings: Settings) -> Mapping[str, Policy]:
    return presets(_overrides(settings))


def _overrides(settings: Settings) -> PresetOverrides:
    return PresetOverrides(
        max_retries=settings.max_retries,
        retry_delays_s=settings.retry_delays,
        max_retry_attempts=settings.max_retry_attempts,
    )


async def stored_policies(
    settings: Settings, url: str, org: str, specs: Sequence[ConsumerSpec]
) -> Mapping[str, Policy]:
    """Those that the consumers name, as the org has them now, under the overrides of this process's environment."""
    names = {spec.policy for spec in specs if isinstance(spec.policy, str)}
    engine = await Database.open(url, role="redrive_engine", size=1, pooler=settings.pooler)
    try:
        org_id = await find_org(engine, org)
        if org_id is None:
            raise NoPolicy(f'The app is for the org "{org}", which does not exist. `redrive orgs create` makes it.')
        async with engine.tenant(org_id) as session:
            rows = {name: await get_policy(session, name) for name in names}
    finally:
        await engine.close()
    stored = {name: policy_of(row) for name, row in rows.items() if row is not None}
    return overridden(stored, _overrides(settings))


def _consumer(settings: Settings, spec: ConsumerSpec, policies: Mapping[str, Policy]) -> Consumer:
    policy = policies.get(spec.policy) if isinstance(spec.policy, str) else spec.policy
    if policy is None:
        raise NoPolicy(
            f'The consumer of "{spec.queue}" names the policy "{spec.policy}", which does not exist. Known are: '
            f"{', '.join(sorted(policies)) or 'none'}."
        )
    try:
        return Consumer(
            spec,
            policy,
            settings.broker_urls,
            service_version=settings.service_version,
            dice=random.random,
            meter=ConsumerNotes(),
        )
    except UnusablePolicy as problem:
        raise NoPolicy(f'The consumer of "{spec.queue}" cannot use its policy: {problem}.') from problem
