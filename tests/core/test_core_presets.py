"""The presets are exactly those promised, and the environment changes only the ones it may."""

import pytest

from redrive.core.decide import Die, Reason, announces
from redrive.core.outcome import Category, Failure
from redrive.core.policy import Policy, PolicyError, retry_delay
from redrive.core.presets import DEFAULT_POLICY, PRESETS, PresetOverrides, parse_retry_delays, presets

DAY = 86_400.0


def delays(name: str, count: int) -> list[float]:
    found = [retry_delay(PRESETS[name], retry, 0.5) for retry in range(count)]
    return [delay.total_seconds() for delay in found if delay is not None]


def test_the_seven_presets_and_the_default() -> None:
    assert list(PRESETS) == [
        "integration",
        "immediate",
        "manual",
        "relay",
        "triggers",
        "workflow",
        "transformer",
    ]
    assert DEFAULT_POLICY == "integration"
    assert all(policy.timeout_s == 30 and policy.max_retry_after_s == 3600 for policy in PRESETS.values())


def test_the_delays_of_every_preset() -> None:
    assert delays("integration", 5) == [5, 30, 300, 300, 300]
    assert delays("immediate", 4) == [5, 5, 5, 5]
    assert delays("manual", 4) == []
    assert delays("relay", 14) == [*(2**n for n in range(12)), 3600, 3600]
    assert delays("triggers", 4) == [60, 300, 900, 900]
    assert delays("workflow", 8) == [2, 4, 8, 16, 32, 64, 120, 120]
    assert delays("transformer", 3) == [2, 4, 8]


def test_the_jitter_and_the_end_of_every_preset() -> None:
    ends = {name: (policy.jitter, policy.max_retries, policy.max_age_s) for name, policy in PRESETS.items()}
    assert ends == {
        "integration": (0, 3, None),
        "immediate": (0, 3, None),
        "manual": (0, 3, None),
        "relay": (0, None, 7 * DAY),
        "triggers": (0.1, 3, None),
        "workflow": (0.25, 3, None),
        "transformer": (0.2, 3, None),
    }


def test_the_retention_of_every_preset() -> None:
    kept = {
        name: (policy.retention.delivered_s, policy.retention.failed_s, policy.retention.dead_s)
        for name, policy in PRESETS.items()
    }
    assert kept["relay"] == (7 * DAY, 7 * DAY, 14 * DAY)
    assert {kept[name] for name in ("workflow", "transformer")} == {(None, None, None)}
    for name in ("integration", "immediate", "manual", "triggers"):
        assert kept[name] == (30 * DAY, None, None)


def test_only_the_relay_is_quiet_about_permanent_deaths() -> None:
    permanent = Die(Reason.PERMANENT, Category.CLIENT_ERROR)
    too_old = Die(Reason.EXPIRED, Category.SERVER_ERROR)
    assert [name for name, policy in PRESETS.items() if not announces(policy, permanent)] == ["relay"]
    assert all(announces(policy, too_old) for policy in PRESETS.values())
    silent = Policy.from_spec({"kind": "manual", "notify": False})
    assert not announces(silent, too_old)


def test_the_environment_changes_transformer_and_triggers_alone() -> None:
    changed = presets(PresetOverrides(max_retries=5, retry_delays_s=(1.0, 2.0), max_retry_attempts=7))
    assert changed["transformer"].max_retries == 5
    assert changed["triggers"].delays_s == (1.0, 2.0)
    assert changed["triggers"].max_retries == 7
    assert changed["triggers"].fail == PRESETS["triggers"].fail
    untouched = set(PRESETS) - {"transformer", "triggers"}
    assert all(changed[name] == PRESETS[name] for name in untouched)
    assert presets(PresetOverrides()) == dict(PRESETS)


def test_an_override_that_cannot_be_used_is_refused() -> None:
    with pytest.raises(PolicyError, match="max_retries"):
        presets(PresetOverrides(max_retries=-1))


def test_retry_delays_are_read_from_a_line() -> None:
    assert parse_retry_delays("60,300,900") == (60, 300, 900)
    assert parse_retry_delays(" 0.5 , 2 ") == (0.5, 2)


@pytest.mark.parametrize("text", ["", "60,,900", "a", "-1", "nan", "inf", "1e400", "60;300", "1," * 200, "9" * 5000])
def test_unusable_retry_delays_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="retry delays"):
        parse_retry_delays(text)


def test_workflow_and_transformer_do_not_retry_the_unknown() -> None:
    failure = Failure(Category.UNKNOWN, "odd")
    retried = {name for name, policy in PRESETS.items() if failure.category in policy.retry}
    assert retried == {"integration", "immediate", "manual", "relay", "triggers"}
