"""Settings from file, environment and flags: who wins, and what a mistake is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from headwater.config.keys import KEYS
from headwater.config.loading import Settings, SettingsError, load_settings
from headwater.core.errors import RequestError
from tests.rig.setting_defaults import default_of

FILES = {
    "server.toml": 'port = 5000\nhost = "127.0.0.2"\nsegment_max_events = 77\n',
    "keys.txt": "first-secret:read # the dashboard\n\nsecond-secret\n",
    "empty.txt": "",
    "remarks.txt": "# keys come here\n\n",
    "api_keys.toml": 'api_keys = "@empty.txt"\n',
    "kafka_users.toml": 'kafka_users = "@empty.txt"\n',
}


def read_file(name: str) -> str:
    if name not in FILES:
        raise RequestError(f"there is no file {name}; check the path")
    return FILES[name]


def load(
    flags: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    config: str | None = None,
) -> Settings:
    return load_settings(flags or {}, environment or {}, config, read_file)


def mistakes(
    flags: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    config: str | None = None,
) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load(flags, environment, config)
    return caught.value.mistakes


@pytest.mark.claims(294)
def test_nothing_given_means_the_defaults_of_the_contract() -> None:
    settings = load()
    assert settings == Settings()
    assert (settings.server.host, settings.server.port) == ("127.0.0.1", 4000)
    assert settings.data_dir == "./headwater-data"
    assert settings.engine.segments.segment_max_bytes == 67_108_864
    assert settings.changed_lines() == []


def test_flags_win_over_the_environment_and_that_over_the_file() -> None:
    environment = {"HEADWATER_PORT": "6000", "HEADWATER_SEGMENT_MAX_EVENTS": "88"}
    settings = load({"port": 7000, "host": None}, environment, "server.toml")
    assert settings.server.port == 7000
    assert settings.engine.segments.segment_max_events == 88
    assert settings.server.host == "127.0.0.2"
    assert settings.changed_lines() == [
        "host = 127.0.0.2 (server.toml)",
        "port = 7000 (--port)",
        "segment_max_events = 88 (HEADWATER_SEGMENT_MAX_EVENTS)",
    ]


def test_the_environment_can_name_the_file_and_the_flag_wins() -> None:
    named = {"HEADWATER_CONFIG": "server.toml"}
    assert load(environment=named).server.port == 5000
    (mistake,) = mistakes(environment=named, config="other.toml")
    assert mistake == "there is no file other.toml; check the path"


def test_a_value_equal_to_the_default_is_not_listed() -> None:
    assert load({"port": 4000}).changed_lines() == []


@pytest.mark.parametrize("text", ["one-secret,two-secret:read", "one-secret\ntwo-secret:read\n"])
def test_keys_are_separated_by_commas_or_lines_and_never_shown(text: str) -> None:
    settings = load(environment={"HEADWATER_API_KEYS": text})
    assert settings.server.api_keys == ("one-secret", "two-secret:read")
    assert settings.changed_lines() == ["api_keys = 2 keys, not shown (HEADWATER_API_KEYS)"]
    assert "secret" not in repr(settings.changed_lines())


def test_keys_come_from_a_file_when_an_at_sign_names_one() -> None:
    settings = load(environment={"HEADWATER_API_KEYS": "@keys.txt"})
    assert settings.server.api_keys == ("first-secret:read", "second-secret")
    (mistake,) = mistakes(environment={"HEADWATER_API_KEYS": "@nowhere"})
    assert mistake == ("environment: HEADWATER_API_KEYS: there is no file nowhere; check the path")


@pytest.mark.parametrize("name", ["HEADWATER_API_KEYS", "HEADWATER_KAFKA_USERS"])
def test_a_file_of_keys_without_a_key_is_refused_not_taken_for_none(name: str) -> None:
    """As the file that was made for the unit and not filled yet: it would open every door."""
    for file in ("empty.txt", "remarks.txt"):
        (mistake,) = mistakes(environment={name: f"@{file}"})
        assert mistake.startswith(f"environment: {name}: there is nothing in {file}; ")
    (mistake,) = mistakes(config=f"{name.removeprefix('HEADWATER_').lower()}.toml")
    assert "there is nothing in empty.txt; " in mistake
    (mistake,) = mistakes(environment={name: " # later\n,"})
    assert "there is nothing in it; " in mistake
    assert load(environment={name: " "}).server.api_keys == ()


def test_a_password_in_the_address_of_a_store_is_not_shown() -> None:
    url = "s3://user:hunter2@bucket/x?secret_key=hunter3&region=eu"
    (line,) = load(environment={"HEADWATER_COLD_URL": url}).changed_lines()
    assert line == "cold_url = s3://...@bucket/x?secret_key=...&region=eu (HEADWATER_COLD_URL)"


def test_an_unknown_variable_is_refused_with_the_nearest_name() -> None:
    assert mistakes(environment={"HEADWATER_WAL_SHARD": "2"}) == [
        "environment: there is no setting HEADWATER_WAL_SHARD; did you mean HEADWATER_WAL_SHARDS?"
    ]


def test_an_unknown_key_of_a_file_is_refused_with_the_nearest_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(FILES, "bad.toml", "prot = 1\n[segments]\nmax = 1\n")
    assert mistakes(config="bad.toml") == [
        "bad.toml: there is no setting prot; did you mean port?",
        "bad.toml: there are no sections such as [segments]; all settings stand at the top",
    ]


def test_every_mistake_is_told_with_its_source_and_what_is_meant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(FILES, "bad.toml", "port = true\n")
    environment = {"HEADWATER_SEGMENT_MAX_EVENTS": "many", "HEADWATER_LOG_LEVEL": "loud"}
    assert mistakes({"wal_shards": 0}, environment, "bad.toml") == [
        "bad.toml: port must be a whole number from 0 to 65535, not True",
        "environment: HEADWATER_LOG_LEVEL must be one of debug, info, warning, error, not 'loud'",
        "environment: HEADWATER_SEGMENT_MAX_EVENTS must be a whole number, 1 or more, not 'many'",
        "command line: --wal-shards must be a whole number from 1 to 256, not 0",
    ]


@pytest.mark.parametrize("name", ["with space", "-first", "kafka:orders:0"])
def test_the_topic_of_transitions_must_be_a_topic_that_can_be(name: str) -> None:
    told = mistakes({}, {"HEADWATER_MACHINE_TRANSITIONS_TOPIC": name})
    assert told == [
        "environment: HEADWATER_MACHINE_TRANSITIONS_TOPIC must be the name of a topic, or off, "
        f"not {name!r}"
    ]


def test_a_file_that_is_not_toml_is_told_with_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FILES, "bad.toml", "port 4000\n")
    (mistake,) = mistakes(config="bad.toml")
    assert mistake.startswith("bad.toml: not TOML: ")
    assert "line 1" in mistake


def test_two_names_of_the_cold_tier_in_one_source_are_a_mistake() -> None:
    both = {"HEADWATER_COLD_DIR": "cold", "HEADWATER_COLD_URL": "s3://b/p"}
    (mistake,) = mistakes(environment=both)
    assert "HEADWATER_COLD_DIR and HEADWATER_COLD_URL mean the same thing" in mistake
    later = load({"cold_dir": "here"}, {"HEADWATER_COLD_URL": "s3://b/p"})
    assert later.engine.cold_url == "here"


def test_the_limit_on_topics_reaches_the_engine_too() -> None:
    settings = load(environment={"HEADWATER_LIMIT_TOPICS": "5"})
    assert (settings.server.limits.topics, settings.engine.topics_max) == (5, 5)
    assert settings.changed_lines() == ["limit_topics = 5 (HEADWATER_LIMIT_TOPICS)"]


def test_the_limit_on_routers_reaches_the_engine() -> None:
    settings = load(environment={"HEADWATER_LIMIT_ROUTERS": "2"})
    assert settings.engine.routers_max == 2


def test_variables_that_kubernetes_sets_are_left_alone() -> None:
    load(
        environment={
            "HEADWATER_SERVICE_HOST": "10.0.0.1",
            "HEADWATER_SERVICE_PORT_HTTP": "4000",
            "HEADWATER_PORT_4000_TCP_ADDR": "10.0.0.1",
            "HEADWATER_URL": "http://elsewhere",
        }
    )
    (mistake,) = mistakes(environment={"HEADWATER_PORT": "tcp://10.0.0.1:4000"})
    assert "enableServiceLinks" in mistake


def test_an_empty_variable_counts_as_not_given() -> None:
    assert load(environment={"HEADWATER_PORT": ""}) == Settings()


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name)
def test_every_key_fills_a_field_whose_default_it_accepts(key: Any) -> None:
    default = default_of(key)
    if default is not None and default != ():
        assert key.read(default) == default
        assert key.read(str(default)) == default
