"""A configuration becomes settings, or an error that names the key and the line. Each default is written once."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import fields
from datetime import time
from inspect import signature
from pathlib import Path

import pytest
from typer.testing import CliRunner

from clustertwin.cli.serve import app as serve
from clustertwin.cli.up import app as up
from clustertwin.core.errors import SettingsError
from clustertwin.service import config as config_module
from clustertwin.service import serving
from clustertwin.service.config import ConfigError, EventsSection, ServiceConfig, parse_config, read_config
from clustertwin.service.live.beside.recording_thread import RecordingThread
from clustertwin.service.live.feeds.source_setup import SourceSettings
from clustertwin.service.live.live_recorder import LiveRecorder
from clustertwin.telemetry.detection.events.tracker import EventSettings
from clustertwin.telemetry.exporter import __main__ as exporter
from clustertwin.telemetry.learning.night.calendar_day import DayLimits

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


#: section -> its class, where the section has settings of another part of the service
SECTIONS = {
    name: field.annotation
    for name, field in ServiceConfig.model_fields.items()
    if hasattr(field.annotation, "settings")
}
DOCS = Path(__file__).parents[2] / "docs" / "service.md"


def test_a_file_becomes_settings_and_missing_keys_have_their_defaults():
    config = parse_config(GOOD, "twin.toml", {})
    assert (config.service.port, config.service.names) == (9000, ("twin.example.org",))
    assert (config.source.url, config.events.needed_s, config.events.of_s) == ("http://prometheus:9090", 30, 90)


@pytest.mark.parametrize("text", ["service = 3", "service = 'x'", "[[service]]\nport = 1"])
def test_a_section_that_is_no_table_is_refused_also_with_a_home_in_the_environment(text):
    with pytest.raises(ConfigError, match=r"twin\.toml:1: service: "):
        parse_config(text, "twin.toml", {"CLUSTERTWIN_HOME": "/h"})


def test_a_home_of_nobody_is_one_sentence():
    config = parse_config("[service]\nhome = '~no.such.user/x'", "twin.toml", {})
    with pytest.raises(SettingsError, match=r"~no\.such\.user/x: this machine has no such user"):
        _ = config.home


@pytest.mark.parametrize(
    "tables",
    [
        "[source]\nkind = 'exporters'\nurls = ['http://n1:9752']",
        "[source]\nkind = 'remote-write'",
        "[source]\nkind = 'remote-write'\n[recording]\non = false\ncluster = true",
        "[recording]\non = false",
    ],
)
def test_a_night_without_stored_data_is_refused_by_the_check(tmp_path, twin_here, tables):
    (tmp_path / "twin.toml").write_text(f"{tables}\n[learning]\nnightly = '02:30'\n")
    refused = twin_here("serve", "--config", tmp_path / "twin.toml", "--check")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "learning.nightly: the data of the day is not stored" in refused.stderr
    assert "recording.on and recording.cluster with the other kinds" in refused.stderr


EXPORTERS = "[source]\nkind = 'exporters'\nurls = ['http://n1:9752']\n"
PROMETHEUS = "[source]\nkind = 'prometheus'\nurl = 'http://p:9090'\n"


@pytest.mark.parametrize(
    ("source", "by_default", "of_a_cluster"),
    [
        ("", "recording", "recording"),
        (EXPORTERS, None, "recording"),
        ("[source]\nkind = 'remote-write'\n", None, "recording"),
        (PROMETHEUS, None, None),
    ],
)
def test_a_cluster_is_recorded_if_that_is_set_and_prometheus_does_not_store_it(source, by_default, of_a_cluster):
    for section, expected in (("", by_default), ("[recording]\ncluster = true\n", of_a_cluster)):
        config = parse_config(f"[service]\nhome = '/h'\n{source}{section}", "twin.toml", {})
        assert config.recording_directory == (Path("/h") / expected if expected else None)


@pytest.mark.parametrize("source", [EXPORTERS, "[source]\nkind = 'remote-write'\n"])
def test_a_night_may_learn_from_the_recording_of_a_cluster(source):
    night = "[recording]\ncluster = true\n[learning]\nnightly = '02:30'\n"
    parse_config(f"{source}{night}", "twin.toml", {}).check_nights()


def test_a_cluster_is_recorded_beside_the_loop_and_a_host_by_the_loop(tmp_path):
    home = f"[service]\nhome = '{tmp_path}'\n"
    assert isinstance(serving._recorder(parse_config(home, "x", {})), LiveRecorder)
    assert serving._recorder(parse_config(home + EXPORTERS, "x", {})) is None
    cluster = serving._recorder(parse_config(f"{home}{EXPORTERS}[recording]\ncluster = true\n", "x", {}))
    assert isinstance(cluster, RecordingThread)


def test_an_address_for_other_machines_without_tls_is_refused_by_the_check(tmp_path, twin_here):
    (tmp_path / "twin.toml").write_text("[service]\nhost = '0.0.0.0'\n")
    refused = twin_here("serve", "--config", tmp_path / "twin.toml", "--check")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "0.0.0.0 can be reached from outside this machine: it needs TLS (certificate and key)" in refused.stderr


def test_nightly_learning_is_off_by_default():
    assert parse_config("", "twin.toml", {}).learning.hour is None
    assert parse_config("[learning]\nnightly = '02:30'\n", "twin.toml", {}).learning.hour == time(2, 30)


def test_variables_override_the_file_and_commas_separate_lists():
    variables = {"CLUSTERTWIN_SERVICE__PORT": "9100", "CLUSTERTWIN_NOTIFY__URLS": "json://a, json://b"}
    config = parse_config(
        GOOD, "twin.toml", {**variables, "CLUSTERTWIN_HOME": "/var/lib/twin", "CLUSTERTWIN_DATA": "x"}
    )
    assert (config.service.port, config.notify.urls) == (9100, ("json://a", "json://b"))
    assert str(config.home) == "/var/lib/twin"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[service]\nport = 'x'\n", "twin.toml:2: service.port: Input should be a valid integer"),
        ("\n[service]\n\npott = 1\n", "twin.toml:4: there is no setting service.pott; did you mean service.port?"),
        ("[servce]\nport = 1\n", "twin.toml:1: there is no setting servce; did you mean service?"),
        (
            "[clusters]\na = {url = 'http://a', lnk = ''}\n",
            "twin.toml:2: there is no setting clusters.a.lnk; did you mean clusters.a.link?",
        ),
        ("[source]\nkind = 'prometheus'\n", "twin.toml:1: source: kind prometheus needs url"),
        (
            "[source]\nkind = 'exporters'\n",
            'twin.toml:1: source: kind exporters needs urls, a list such as ["http://n1:9752"]',
        ),
        (
            "[source]\nkind = 'exporters'\nurls = 'n1:9752'\n",
            "twin.toml:3: source.urls: Input should be a list in brackets",
        ),
        ("[events]\nneeded_s = 99\nof_s = 9\n", "twin.toml:1: events: needed_s 99 is larger than of_s 9"),
        ("[scoring]\nstride_s = 1\nengine = 'dask'\n", "twin.toml:3: scoring.engine: Input should be 'here' or 'ray'"),
        (
            "[learning]\n\nnightly = '24:30'\n",
            "twin.toml:3: learning.nightly: '24:30' is not a time of day such as 02:30",
        ),
        ("[source]\nshard = '4/3'\n", "twin.toml:2: source.shard: '4/3' is not a shard such as 3/40"),
        ("[source]\nkind = 'exporters'\nurls = ['http://a']\nshard = '1/2'\n", "twin.toml:1: source: shard 1/2 needs"),
        (
            "[clusters.a]\nurl = 'http://a'\n\n[clusters.b]\nurl = 'b:8790'\n",
            "twin.toml:5: clusters.b.url: 'b:8790' is not an address like https://host:8790",
        ),
        ("[clusters]\na = 'javascript:alert(1)'\n", "twin.toml:2: clusters.a.url: 'javascript:alert(1)' is not an"),
        ("[service\n", "twin.toml:1: "),
        ("service = 3\n", "twin.toml:1: service: "),
    ],
)
def test_an_error_names_the_key_and_the_line(text, message):
    with pytest.raises(ConfigError) as caught:
        parse_config(text, "twin.toml", {})
    assert str(caught.value).startswith(message)
    assert isinstance(caught.value, SettingsError)
    assert caught.value.exit_code == 2


def test_a_variable_of_no_section_is_an_error():
    with pytest.raises(ConfigError, match="CLUSTERTWIN_SERVCE__PORT: there is no setting servce; did you mean service"):
        parse_config("", "twin.toml", {"CLUSTERTWIN_SERVCE__PORT": "9100"})


def test_joined_clusters_are_tables_or_addresses_and_a_variable_adds_one():
    text = "[clusters]\nalpha = 'http://a:8790'\n[clusters.beta]\nurl = 'https://b'\nreaders = ['ada']\n"
    members = parse_config(text, "twin.toml", {"CLUSTERTWIN_CLUSTERS__GAMMA": "http://c:8790"}).members()
    assert [(each.name, each.url, each.readers) for each in members] == [
        ("alpha", "http://a:8790", ()),
        ("beta", "https://b", ("ada",)),
        ("gamma", "http://c:8790", ()),
    ]


def test_the_shards_of_a_list_of_exporters_are_disjoint_neighbours_and_complete():
    urls = tuple(f"http://e{i}" for i in range(10))
    parts = [SourceSettings("exporters", urls=urls, shard=f"{i}/3").shard_urls for i in (1, 2, 3)]
    assert [len(part) for part in parts] == [3, 3, 4]
    assert sum(parts, ()) == urls


def test_an_error_names_the_variable():
    with pytest.raises(ConfigError, match=r"^CLUSTERTWIN_SERVICE__PORT: service\.port: Input should be"):
        parse_config("[service]\nport = 1\n", "twin.toml", {"CLUSTERTWIN_SERVICE__PORT": "many"})


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_config(tmp_path / "twin.toml", {})


@pytest.mark.parametrize("section", SECTIONS.values(), ids=SECTIONS)
def test_a_section_has_the_defaults_of_its_settings(section):
    settings = section().settings()
    assert settings == type(settings)()


@pytest.mark.parametrize("section", SECTIONS.values(), ids=SECTIONS)
def test_a_section_repeats_no_default_of_its_settings(section):
    shared = {field.name for field in fields(section().settings())}
    classes = {
        node.name: node for node in ast.parse(Path(config_module.__file__).read_text()).body if hasattr(node, "name")
    }
    for line in classes[section.__name__].body:
        if isinstance(line, ast.AnnAssign) and line.target.id in shared:
            call = isinstance(line.value, ast.Call)
            default = next(word.value for word in line.value.keywords if word.arg == "default") if call else line.value
            assert isinstance(default, ast.Attribute), ast.unparse(line)


def test_check_prints_every_setting_with_its_default():
    printed = json.loads(CliRunner().invoke(serve, ["--check"], env={"CLUSTERTWIN_HOME": ""}).output)
    assert printed == json.loads(ServiceConfig().model_dump_json())


def test_the_docs_list_every_setting_with_its_default():
    rows = re.findall(r"^\| `(\w+)\.(\w+)` \| `(.*?)` \|", DOCS.read_text(), re.M)
    documented = {(section, key): json.loads(default) for section, key, default in rows}
    defaults = json.loads(ServiceConfig().model_dump_json())
    assert documented == {(section, key): value for section, keys in defaults.items() for key, value in keys.items()}


def test_the_example_of_the_docs_is_valid_and_states_the_default_stride():
    example = re.search(r"```toml\n(.*?)```", DOCS.read_text(), re.S)[1]
    assert parse_config(example, "service.md", {}).scoring.stride_s == ServiceConfig().scoring.stride_s


def test_every_setting_of_events_but_the_technical_step_can_be_set():
    names = {each.name for each in fields(EventSettings)} - {"longest_step_s"}
    assert set(EventsSection.model_fields) == names
    config = parse_config("[events]\nchance_per_node_day = 0.1\n", "twin.toml", {})
    assert config.loop_settings().events.chance_per_node_day == 0.1


def test_the_docs_name_the_port_of_the_exporter():
    """An address with a port of four digits in front of a node is the exporter's, whatever the page."""
    root = DOCS.parents[1]
    default = re.search(r'dest="address", default="127.0.0.1:(\d+)"', Path(exporter.__file__).read_text())[1]
    pages = [root / "README.md", *root.glob("docs/*.md"), *root.glob("deploy/**/*.yml"), *root.glob("src/**/*.py")]
    ports = {
        (page.name, port)
        for page in pages
        for port in re.findall(r"(?:\bn\d+|node\d+|\[::1\]):(\d{4})\b", page.read_text())
    }
    assert ports
    assert {port for _, port in ports} == {default}, ports


def test_the_docs_state_the_minimum_of_a_night():
    limits, page = DayLimits(), (DOCS.parent / "learning.md").read_text().replace("\n", " ")
    assert f"less than {limits.thread_hours:g} thread-hour" in page
    assert f"fewer than {limits.fewest_moments} moments" in page
    assert f"no node with {limits.coverage:.0%} of its" in page.replace(" %", "%")
    assert f"more than {limits.drift:.0%} of the day" in page.replace(" %", "%")


@pytest.mark.parametrize("word", ["task/cgroup", "ConstrainCores=yes", "jobacct_gather/cgroup", "proctrack/cgroup"])
def test_the_docs_name_the_settings_that_slurm_needs(word):
    assert word in (DOCS.parent / "deploy.md").read_text()


def test_twin_up_has_the_same_defaults():
    options = [parameter.default for parameter in signature(up.registered_commands[0].callback).parameters.values()]
    by_flag = {option.param_decls[0]: option.default for option in options if option.param_decls}
    defaults = ServiceConfig()
    assert by_flag["--port"] == defaults.service.port
    assert by_flag["--stride-s"] == defaults.scoring.stride_s
    assert by_flag["--home"] == defaults.service.home


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[recording]\nkeep_days = 1e308", "x.toml:2: recording.keep_days: Input should be less than"),
        ("[recording]\nkeep_gb = 1e308", "x.toml:2: recording.keep_gb: Input should be less than"),
        ("[retention]\nlog_mb = 1e308", "x.toml:2: retention.log_mb: Input should be less than"),
        (f"[scoring]\nforget_s = {'9' * 30}", "x.toml:2: scoring.forget_s: Input should be less than"),
        (f"[scoring]\nforget_s = {'9' * 5000}", "x.toml: Exceeds the limit"),
        ("[hand]\nevery_s = 1e308", "x.toml:2: hand.every_s: Input should be less than"),
        ('[service]\nhome = "a\\u0000b"', "x.toml:2: service.home: 'a.x00b' has characters that cannot be printed"),
        ('[service]\nnames = ["a", "b\\r\\n"]', "x.toml:2: service.names: .* has characters that cannot be printed"),
        ("[service]\nport = true", "x.toml:2: service.port: Input should be a number"),
        ('[service]\nhome = ""', "x.toml:2: service.home: String should have at least 1 character"),
        (f"a = {'[' * 100_000}", "x.toml: the document is nested too deeply"),
        # Deeper than the recursion limit that some packages set when they are imported.
        (f"a = {'{a=' * 100_000}1", "x.toml: the document is nested too deeply"),
    ],
)
def test_a_value_that_no_part_of_the_service_can_use_is_refused_with_its_line(text, reason):
    """Each was a traceback, at the start or later in a thread."""
    with pytest.raises(ConfigError, match=reason):
        parse_config(text, "x.toml", {})


@pytest.mark.parametrize("name", ["https://twin.example.org", "twin.example.org/", "a@b", "a b"])
def test_a_name_that_is_no_host_is_refused_and_does_not_open_the_guard(name):
    """Its empty name was that of every Host header that is none, so that check was off."""
    from clustertwin.service.web.access import Guard
    from clustertwin.service.web.binding import Binding

    with pytest.raises(SettingsError, match="is not a host name"):
        Guard(None, None, Binding(names=("right.example.org", name)), ())


def test_a_host_that_no_resolver_can_encode_is_one_sentence():
    from clustertwin.service.serving import _listen
    from clustertwin.service.web.binding import Binding
    from clustertwin.service.web.connections import BoundedListener

    with pytest.raises(SettingsError, match="is not a host name"):
        _listen(Binding(host="ä" * 100), BoundedListener)


@pytest.mark.parametrize("path", ["/dev/zero", "\0"])
def test_a_secret_without_end_or_name_is_refused(path):
    """A token file without end filled the memory."""
    from clustertwin.service.live.feeds.source_setup import SourceSettings

    with pytest.raises(SettingsError):
        SourceSettings("exporters", token_file=path).endpoint("http://h:1")
