"""A configuration is honoured, or refused with its key and its line."""

from __future__ import annotations

from datetime import time

import pytest

from clustertwin.core.errors import SettingsError
from clustertwin.service.config import ConfigError, parse_config, read_config

GOOD = """
[service]
port = 9000
names = ["twin.example.org"]

[source]
kind = "prometheus"
url = "http://prometheus:9090"

[events]
needed_s = 30
"""


def test_a_file_becomes_settings_and_what_it_does_not_say_is_the_default():
    config = parse_config(GOOD, "twin.toml", {})
    assert (config.service.port, config.service.names) == (9000, ("twin.example.org",))
    assert (config.source.url, config.events.needed_s, config.events.of_s) == ("http://prometheus:9090", 30, 90)


def test_learning_by_night_is_off_until_an_hour_is_named():
    assert parse_config("", "twin.toml", {}).learning.hour is None
    assert parse_config("[learning]\nnightly = '02:30'\n", "twin.toml", {}).learning.hour == time(2, 30)


def test_the_environment_wins_and_lists_have_commas():
    told = {"CLUSTERTWIN_SERVICE__PORT": "9100", "CLUSTERTWIN_NOTIFY__URLS": "json://a, json://b"}
    config = parse_config(GOOD, "twin.toml", {**told, "CLUSTERTWIN_HOME": "/var/lib/twin", "CLUSTERTWIN_DATA": "x"})
    assert (config.service.port, config.notify.urls) == (9100, ("json://a", "json://b"))
    assert str(config.home) == "/var/lib/twin"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[service]\nport = 'x'\n", "twin.toml:2: service.port: Input should be a valid integer"),
        ("\n[service]\n\npott = 1\n", "twin.toml:4: there is no setting service.pott"),
        ("[servce]\nport = 1\n", "twin.toml:1: there is no setting servce"),
        ("[source]\nkind = 'prometheus'\n", "twin.toml:1: source: kind prometheus needs url"),
        ("[events]\nneeded_s = 99\nof_s = 9\n", "twin.toml:1: events: needed_s 99 is larger than of_s 9"),
        ("[scoring]\nstride_s = 1\nengine = 'dask'\n", "twin.toml:3: scoring.engine: Input should be 'here' or 'ray'"),
        (
            "[learning]\n\nnightly = '24:30'\n",
            "twin.toml:3: learning.nightly: '24:30' is not a time of day such as 02:30",
        ),
        ("[service\n", "twin.toml:1: "),
        ("service = 3\n", "twin.toml:1: service: "),
    ],
)
def test_what_is_wrong_is_named_with_its_key_and_its_line(text, said):
    with pytest.raises(ConfigError) as caught:
        parse_config(text, "twin.toml", {})
    assert str(caught.value).startswith(said)
    assert isinstance(caught.value, SettingsError)
    assert caught.value.exit_code == 2


def test_a_wrong_variable_is_named_as_such():
    with pytest.raises(ConfigError, match=r"^CLUSTERTWIN_SERVICE__PORT: service\.port: Input should be"):
        parse_config("[service]\nport = 1\n", "twin.toml", {"CLUSTERTWIN_SERVICE__PORT": "many"})


def test_a_file_that_is_not_there_is_said_so(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_config(tmp_path / "twin.toml", {})
