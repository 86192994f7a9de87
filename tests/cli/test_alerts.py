"""`redrive alerts`: incidents, rules, and the test of who is told."""

from redrive.store.alert_rounds import AlertRounds
from redrive.store.clock import DatabaseClock
from redrive.store.endpoints import Endpoints, EndpointSpec
from redrive.store.seal import Sealer

from .command import redrive
from .world import ACT, World


async def test_incidents_are_listed_and_rules_set_reset_and_seen(world: World) -> None:
    nothing = await redrive("alerts", "list", url=world.url)
    assert (nothing.code, nothing.err.strip()) == (0, "No alert fires, and none has.")
    put = await redrive("alerts", "set", "dead_letters_open", "threshold=0", "--because", "quiet org", url=world.url)
    assert (put.code, put.err.strip()) == (0, 'Rule "dead_letters_open" is on: threshold 0.')
    await world.dead()
    over = await redrive("alerts", "list", "--state", "over", "--rule", "dead_letters_open", url=world.url)
    assert (over.code, over.err.strip()) == (0, "There is no such alert.")
    await AlertRounds(world.engine, DatabaseClock(), every_s=0).look()
    listed = await redrive("alerts", "list", "--state", "firing", "--json", url=world.url)
    assert {row["rule"] for row in listed.objects} == {"dead_letters_open", "dead_letter_arrived"}
    rules = {row["rule"]: row for row in (await redrive("alerts", "rules", "--json", url=world.url)).objects}
    assert (rules["dead_letters_open"]["threshold"], rules["dead_letters_open"]["is_set"]) == (0, True)
    assert rules["dead_letters_open"]["readings"][0]["standing"] == "above"
    assert {"no_worker", "job_stale", "long_transaction"} <= set(rules)
    table = (await redrive("alerts", "rules", url=world.url)).out
    assert "threshold 5 %, window_s 15 min, min_volume 20" in table
    off = await redrive("alerts", "set", "dead_letters_open", "--off", url=world.url)
    assert off.err.strip() == 'Rule "dead_letters_open" is off.'
    reset = await redrive("alerts", "reset", "dead_letters_open", url=world.url)
    assert reset.err.strip() == 'Rule "dead_letters_open" has its defaults.'


async def test_what_cannot_be_is_refused_and_says_what_could(world: World) -> None:
    for arguments, said in (
        (("set", "failure_rate", "threshold=2"), "threshold must be from 0 to 1."),
        (("set", "failure_rate", "threshold"), "PARAMETER=NUMBER"),
        (("set", "failure_rat", "threshold=0.5"), "There are: failure_rate,"),
        (("list", "--state", "on"), "firing or over"),
        (("list", "--rule", "failure_rat"), "There are: failure_rate,"),
    ):
        refused = await redrive("alerts", *arguments, url=world.url)
        assert refused.code != 0
        assert said in refused.err.replace("\n", " "), refused.err


async def test_a_test_says_who_gets_it(world: World) -> None:
    assert "redrive.alert.*" in (await redrive("alerts", "test", url=world.url)).err
    asks = EndpointSpec(name="ops", url="http://127.0.0.1:9/", event_types=("redrive.alert.*",))
    async with world.app.tenant(world.org_id) as session:
        await Endpoints(Sealer.from_passphrase("a test")).create(session, asks, ACT)
    assert "on its way to ops" in (await redrive("alerts", "test", url=world.url)).err
    row = (await redrive("alerts", "test", "--json", url=world.url)).object
    assert [each["name"] for each in row["endpoints"]] == ["ops"]
