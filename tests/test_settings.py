"""Settings: which source wins, and what a person is told about a value that cannot be used."""

import os
from ipaddress import ip_network
from pathlib import Path

import pytest

from redrive.core.breaker import DEFAULT_RULES
from redrive.settings import MAX_TRICKLE_PER_S, Settings, SettingsError, default_data_dir, load_settings


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith("REDRIVE_") or name.lower() in Settings.model_fields:
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def test_the_defaults_serve_on_loopback_without_any_setting() -> None:
    settings = load_settings()
    assert (settings.host, settings.port, settings.database_url) == ("127.0.0.1", 8787, None)
    assert (settings.workers, settings.concurrency, settings.service_version) == (1, 500, "1.0.0")


def test_flags_win_over_the_environment_over_the_file_over_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("redrive.toml").write_text('port = 1\nworkers = 2\nhost = "::1"\n')
    monkeypatch.setenv("REDRIVE_PORT", "3")
    monkeypatch.setenv("REDRIVE_WORKERS", "4")
    settings = load_settings(port=5, host=None)
    assert (settings.port, settings.workers, settings.host, settings.concurrency) == (5, 4, "::1", 500)


def test_old_names_work_without_the_prefix_and_lose_against_it(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("redrive.toml").write_text("max_retries = 9\nretry_delays = [1, 2]\n")
    monkeypatch.setenv("MAX_RETRIES", "5")
    monkeypatch.setenv("MAX_RETRY_ATTEMPTS", "6")
    monkeypatch.setenv("RETRY_DELAYS", "60, 300,900")
    monkeypatch.setenv("REDRIVE_SERVICE_VERSION", "2.0.0")
    monkeypatch.setenv("SERVICE_VERSION", "1.5.0")
    monkeypatch.setenv("LOG_LEVEL", "WARN")
    settings = load_settings()
    assert (settings.max_retries, settings.max_retry_attempts) == (5, 6)
    assert settings.retry_delays == (60.0, 300.0, 900.0)
    assert (settings.service_version, settings.log_level) == ("2.0.0", "warning")


def test_other_names_mean_nothing_without_the_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORT", "1")
    monkeypatch.setenv("HOST", "elsewhere")
    monkeypatch.setenv("DATABASE_URL", "postgresql://elsewhere/")
    settings = load_settings()
    assert (settings.port, settings.host, settings.database_url) == (8787, "127.0.0.1", None)


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REDRIVE_DATABASE_URL", "REDRIVE_ALLOW_NETWORKS", "REDRIVE_PORT", "MAX_RETRIES"):
        monkeypatch.setenv(name, "")
    settings = load_settings()
    assert (settings.database_url, settings.allow_networks, settings.port) == (None, (), 8787)


def test_networks_are_read_from_text_and_from_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = (ip_network("127.0.0.0/8"), ip_network("fd00::/8"))
    monkeypatch.setenv("REDRIVE_ALLOW_NETWORKS", "127.0.0.0/8, fd00::/8,")
    assert load_settings().allow_networks == wanted
    assert load_settings(allow_networks=["127.0.0.0/8", "fd00::/8"]).allow_networks == wanted


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("REDRIVE_PORT", "65536", "a whole number from 0 to 65535"),
        ("REDRIVE_WORKERS", "many", "a whole number from 0 to 64"),
        ("REDRIVE_ALLOW_NETWORKS", "10.0.0.1/8", "networks in CIDR form without host bits"),
        ("REDRIVE_LOG_FORMAT", "xml", '"json" or "console"'),
        ("LOG_LEVEL", "loud", '"debug", "info"'),
        ("MAX_RETRIES", "-1", "a whole number from 0 to 1000"),
        ("REDRIVE_BREAKER_FAILURE_RATE", "0", "a number above 0 and at most 1"),
        ("REDRIVE_BREAKER_FAILURE_RATE", "nan", "a number above 0 and at most 1"),
        ("REDRIVE_BREAKER_MIN_TRIES", "0", "a whole number from 1 to 100000"),
        ("REDRIVE_BREAKER_TRICKLE_PER_S", "0", "a number above 0 and at most 1000"),
        ("REDRIVE_BREAKER_TRICKLE_IN_FLIGHT", "0", "a whole number from 1 to 1000"),
        ("REDRIVE_RETRY_SHARE", "1.5", "a number from 0 to 1"),
        ("REDRIVE_DISABLE_AFTER_DAYS", "inf", "a number of days from 0 to 365"),
        ("RETRY_DELAYS", "60,nan", "numbers of seconds"),
        ("RETRY_DELAYS", "60,soon", "numbers of seconds"),
        ("RETRY_DELAYS", "1e99", "numbers of seconds"),
    ],
)
def test_a_bad_value_is_named_shown_and_followed_by_what_is_allowed(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, allowed: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError) as caught:
        load_settings()
    message = str(caught.value)
    assert name in message
    assert allowed in message
    assert value.split(",")[-1] in message


def test_the_defaults_are_the_rules_of_breakers_that_core_has() -> None:
    assert load_settings().breaker_rules() == DEFAULT_RULES


@pytest.mark.parametrize("trickle_per_s", [0.1, MAX_TRICKLE_PER_S])
def test_every_allowed_setting_makes_rules_for_breakers(monkeypatch: pytest.MonkeyPatch, trickle_per_s: float) -> None:
    monkeypatch.setenv("REDRIVE_BREAKER_FAILURE_RATE", "1")
    monkeypatch.setenv("REDRIVE_BREAKER_MIN_TRIES", "5")
    monkeypatch.setenv("REDRIVE_RETRY_SHARE", "0")
    rules = load_settings(breaker_trickle_per_s=trickle_per_s).breaker_rules()
    assert (rules.failure_rate, rules.min_tries, rules.trickle_per_s, rules.retry_share) == (1, 5, trickle_per_s, 0)


@pytest.mark.parametrize(("days", "seconds"), [("5", 432_000.0), ("0.5", 43_200.0), ("0", None)])
def test_the_days_of_failure_may_be_fractions_and_none_is_never(
    monkeypatch: pytest.MonkeyPatch, days: str, seconds: float | None
) -> None:
    monkeypatch.setenv("REDRIVE_DISABLE_AFTER_DAYS", days)
    assert load_settings().disable_after_s == seconds


def test_every_bad_value_is_reported_at_once() -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(port=-1, workers=1000)
    assert [line.split()[1] for line in str(caught.value).splitlines()] == ["port", "workers"]


def test_a_secret_is_in_no_message_and_no_representation(monkeypatch: pytest.MonkeyPatch) -> None:
    canary = "canary7canary7"
    with pytest.raises(SettingsError) as caught:
        load_settings(database_url=f"mysql://root:{canary}@db", secret_key=canary)
    assert canary not in str(caught.value)
    assert "postgresql://" in str(caught.value)
    monkeypatch.setenv("REDRIVE_ADMIN_KEY", canary)
    settings = load_settings(database_url=f"postgresql://u:{canary}@db/x", secret_key=canary * 2)
    assert canary not in repr(settings) + str(settings)
    assert settings.admin_key is not None
    assert settings.admin_key.get_secret_value() == canary


@pytest.mark.parametrize("url", ["amqp://u:hunter,2@rabbit", "amqp://u:hunter2#x@rabbit", "amqp://rabbit:hunter2"])
def test_a_broker_s_url_that_cannot_be_read_is_refused_at_once_and_not_repeated(url: str) -> None:
    """A password with a comma, or with what ends a URL, is to be written as %2C and the like."""
    with pytest.raises(SettingsError) as caught:
        load_settings(rabbitmq_url=url)
    assert "hunter" not in str(caught.value)
    assert load_settings(rabbitmq_url="amqp://u:hunter%2C2%23x@a:1/v, amqps://b").broker_urls == (
        "amqp://u:hunter%2C2%23x@a:1/v",
        "amqps://b",
    )


def test_an_unknown_setting_in_the_file_is_an_error_that_lists_the_known_ones() -> None:
    Path("redrive.toml").write_text("prot = 1\n")
    with pytest.raises(SettingsError, match=r"no setting prot\. Known are: .*port"):
        load_settings()


def test_a_broken_or_missing_file_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REDRIVE_CONFIG", str(tmp_path / "mine.toml"))
    with pytest.raises(SettingsError, match=r"mine\.toml, but there is no such file"):
        load_settings()
    (tmp_path / "mine.toml").write_text("port = \n")
    with pytest.raises(SettingsError, match=r"mine\.toml cannot be read: .*line 1"):
        load_settings()
    (tmp_path / "mine.toml").write_text("port = 99\n")
    assert load_settings().port == 99


def test_the_data_folder_follows_xdg_except_for_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_DATA_HOME", "/srv/data")
    assert default_data_dir() == Path("/srv/data/redrive")
    monkeypatch.setenv("XDG_DATA_HOME", "relative/is/ignored")
    monkeypatch.setenv("HOME", "/home/ann")
    assert default_data_dir() == Path("/home/ann/.local/share/redrive")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert default_data_dir() == Path("/var/lib/redrive")


def test_a_relative_data_folder_is_made_absolute(tmp_path: Path) -> None:
    assert load_settings(data_dir=Path("here")).data_dir == tmp_path / "here"


def test_every_setting_is_described() -> None:
    for name, field in Settings.model_fields.items():
        assert field.description, name
        assert isinstance(field.json_schema_extra, dict), name
        assert field.json_schema_extra["allowed"], name


def test_a_pooler_stands_before_the_database_that_is_named_and_never_before_the_embedded_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REDRIVE_DATABASE_POOLER", "Transaction")
    embedded = load_settings()
    assert (embedded.pooler, embedded.direct_url("postgresql://embedded/")) == ("none", "postgresql://embedded/")
    pooled = load_settings(database_url="postgresql://pooled/")
    assert (pooled.pooler, pooled.direct_url("postgresql://pooled/")) == ("transaction", None)
    both = load_settings(database_url="postgresql://pooled/", database_direct_url="postgresql://server/")
    assert both.direct_url("postgresql://pooled/") == "postgresql://server/"


def test_a_direct_url_is_never_shown() -> None:
    settings = load_settings(database_url="postgresql://a/", database_direct_url="postgresql://u:canary@b/")
    assert "canary" not in repr(settings)
    with pytest.raises(SettingsError) as caught:
        load_settings(database_direct_url="mysql://u:canary@b/")
    assert "canary" not in str(caught.value)


def test_a_collector_may_be_named_as_other_programs_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://standard:4318")
    assert load_settings().collector_url == "http://standard:4318"
    monkeypatch.setenv("REDRIVE_OTEL_ENDPOINT", "http://ours:4318")
    assert load_settings().collector_url == "http://ours:4318"
    monkeypatch.setenv("REDRIVE_OTEL_ENDPOINT", "ours:4318")
    with pytest.raises(SettingsError, match="otel_endpoint"):
        load_settings()
