"""Which policy a task gets: the event's own, its type's, its endpoint's, the org's default, ours. The first wins."""

from typing import Any

import pytest

from redrive.core.policy import Policy
from redrive.core.presets import PRESETS, PresetOverrides, presets
from redrive.store import policies
from redrive.store.orgs import DEFAULT_ORG, ensure_org
from redrive.store.policies import MAX_BOUND_TYPES, Binding, InUse, TooManyBound, delete_policy, get_policy
from support.engine import PERSON, Engine


async def _bind(engine: Engine, name: str, *event_types: str, is_default: bool = False) -> None:
    policy = Policy.from_spec({"kind": "list", "delays_s": [1]})
    async with engine.app.tenant(engine.org_id) as session:
        await policies.put_policy(session, name, policy, PERSON, Binding(event_types, is_default))


async def _delete(engine: Engine, name: str) -> InUse | bool:
    async with engine.app.tenant(engine.org_id) as session:
        return await delete_policy(session, name, PERSON)


async def _policy_of(engine: Engine, event_type: str, **fields: Any) -> str:
    task = await engine.task_of(await engine.accept(event_type, **fields))
    name: str = await engine.sql.fetchval("SELECT name FROM redrive.policy WHERE id = $1", task["policy_id"])
    return name


@pytest.mark.parametrize("own", [None, "immediate"])
@pytest.mark.parametrize("of_type", [None, "typed"])
@pytest.mark.parametrize("of_endpoint", [None, "relay"])
@pytest.mark.parametrize("of_org", [None, "usual"])
async def test_the_most_specific_policy_wins(
    engine: Engine, own: str | None, of_type: str | None, of_endpoint: str | None, of_org: str | None
) -> None:
    await engine.endpoint(policy=of_endpoint)
    if of_type:
        await _bind(engine, of_type, "invoice.*")
    if of_org:
        await _bind(engine, of_org, is_default=True)
    expected = own or of_type or of_endpoint or of_org or "integration"
    assert await _policy_of(engine, "invoice.paid", policy=own) == expected
    assert await _policy_of(engine, "stock.low", policy=own) == (own or of_endpoint or of_org or "integration")


@pytest.mark.parametrize(
    ("event_type", "expected"),
    [
        ("order.paid", "exact"),
        ("order.paid.late", "long"),
        ("order.cancelled", "short"),
        ("order", "any"),
        ("Order.paid", "any"),
        ("a_b", "literal"),
        ("axb", "any"),
        ("twice.x", "b-first-by-name"),
    ],
)
async def test_an_exact_type_beats_a_pattern_and_a_long_pattern_a_short_one(
    engine: Engine, event_type: str, expected: str
) -> None:
    await engine.endpoint()
    await _bind(engine, "any", "*", "*.paid.late")
    await _bind(engine, "short", "order.*")
    await _bind(engine, "long", "order.p*")
    await _bind(engine, "exact", "order.paid", "invoice.paid")
    await _bind(engine, "literal", "a_b")
    await _bind(engine, "z-last-by-name", "twice.*")
    await _bind(engine, "b-first-by-name", "twice.*")
    assert await _policy_of(engine, event_type) == expected


async def test_a_handler_s_name_is_its_type(engine: Engine) -> None:
    await _bind(engine, "edi", "edi.*")
    await _bind(engine, "usual", is_default=True)
    handed_in = "SELECT redrive.enqueue($1, '{}', org => $2)"
    names = []
    for handler in ("edi.orders", "mail"):
        event_id = await engine.sql.fetchval(handed_in, handler, DEFAULT_ORG)
        task = await engine.task_of(event_id)
        names.append(await engine.sql.fetchval("SELECT name FROM redrive.policy WHERE id = $1", task["policy_id"]))
    assert names == ["edi", "usual"]


async def test_one_org_s_binding_is_nothing_to_another(engine: Engine) -> None:
    other = await engine.org("other")
    await engine.endpoint("ours")
    await engine.endpoint("theirs", org=other)
    await _bind(engine, "all", "*", is_default=True)
    ours, theirs = engine.new_event(), engine.new_event(org_id=other)
    await engine.accept_all([ours, theirs])
    names = {}
    for event in (ours, theirs):
        task = await engine.task_of(event.id)
        names[event.org_id] = await engine.sql.fetchval(
            "SELECT name FROM redrive.policy WHERE id = $1", task["policy_id"]
        )
    assert names == {engine.org_id: "all", other: "integration"}


async def test_a_policy_that_was_put_again_without_its_types_is_for_none(engine: Engine) -> None:
    await engine.endpoint()
    await _bind(engine, "mine", "*", is_default=True)
    assert await _policy_of(engine, "a") == "mine"
    await _bind(engine, "mine")
    assert await _policy_of(engine, "a") == "integration"


async def test_an_org_has_one_default_and_the_audit_says_who_lost_it(engine: Engine) -> None:
    await engine.endpoint()
    await _bind(engine, "first", "kept.*", is_default=True)
    await _bind(engine, "second", is_default=True)
    assert await _policy_of(engine, "a") == "second"
    assert await _policy_of(engine, "kept.b") == "first"
    async with engine.app.tenant(engine.org_id) as session:
        first = await get_policy(session, "first")
    assert first is not None
    assert (first["is_default"], first["event_types"]) == (False, ["kept.*"])
    told = await engine.sql.fetch(
        "SELECT subject_id, actor, before, after FROM redrive.audit WHERE action = 'policy.default'"
    )
    assert [tuple(row) for row in told] == [
        (first["id"], PERSON.actor, '{"name": "first", "default": true}', '{"name": "first", "default": false}')
    ]


async def test_an_org_s_policies_have_a_limited_number_of_types_in_all(engine: Engine) -> None:
    await _bind(engine, "many", *(f"type.{n}" for n in range(MAX_BOUND_TYPES - 1)))
    await _bind(engine, "last", "one.more")
    with pytest.raises(TooManyBound):
        await _bind(engine, "late", "another")
    await _bind(engine, "last", "still.one")


async def test_a_deleted_policy_is_out_of_force_and_its_tasks_keep_it(engine: Engine) -> None:
    await engine.endpoint()
    await _bind(engine, "mine", "*")
    before = await engine.task_of(await engine.accept("a"))
    assert await _delete(engine, "mine") is True
    assert await _delete(engine, "mine") is False
    assert await _policy_of(engine, "a") == "integration"
    read = await engine.tasks.policies([(engine.org_id, before["policy_id"])])
    assert read[before["policy_id"]].delays_s == (1.0,)
    (entry,) = await engine.sql.fetch(
        "SELECT actor, before ->> 'name' AS name FROM redrive.audit WHERE action = 'policy.delete'"
    )
    assert tuple(entry) == (PERSON.actor, "mine")


async def test_a_policy_that_is_needed_cannot_be_deleted(engine: Engine) -> None:
    for n in range(7):
        await engine.endpoint(f"hook {n}", policy="relay")
    await engine.delete_endpoint(await engine.endpoint("gone", policy="triggers"))
    await _bind(engine, "usual", is_default=True)
    assert await _delete(engine, "relay") == InUse("relay", tuple(f"hook {n}" for n in range(5)), 2, False, False)
    assert await _delete(engine, "usual") == InUse("usual", (), 0, True, False)
    assert isinstance(await _delete(engine, "integration"), InUse)
    assert await _delete(engine, "triggers") is True


async def test_a_restart_brings_no_deleted_preset_back_and_undoes_no_binding(engine: Engine) -> None:
    assert await _delete(engine, "workflow") is True
    async with engine.app.tenant(engine.org_id) as session:
        await policies.put_policy(session, "transformer", PRESETS["transformer"], PERSON, Binding(("edi.*",), True))
    changed = presets(PresetOverrides(max_retries=9))
    for _ in range(2):
        await ensure_org(engine.db, DEFAULT_ORG, changed, overridden=frozenset({"transformer"}))
    async with engine.app.tenant(engine.org_id) as session:
        found = await get_policy(session, "transformer")
        assert await get_policy(session, "workflow") is None
    assert found is not None
    assert policies.policy_of(found).max_retries == 9
    assert policies.binding_of(found) == Binding(("edi.*",), True)
