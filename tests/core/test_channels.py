import pytest

from clustertwin.core.channels import CPU, NODE, Channel, Schema, parse_selector
from clustertwin.core.errors import SettingsError


def test_the_cpu_channels_are_one_simplex():
    assert CPU.simplexes == {"cpu": (0, 1, 2, 3)}
    assert CPU.bounded == ()


def test_node_channels_stand_beside_the_simplex():
    schema = CPU + NODE
    assert schema.bounded == tuple(range(4, 4 + len(NODE)))
    assert schema.of_scope("thread") == CPU
    assert schema.of_scope("node") == NODE


def test_a_schema_survives_json():
    assert Schema.from_json((CPU + NODE).to_json()) == CPU + NODE


def test_a_schema_of_an_older_file_knows_scope_and_label_and_one_of_a_newer_version_keeps_its_names():
    schema = Schema.from_json([{"name": "memory_used", "group": ""}, {"name": "of_the_future", "group": "g"}])
    assert schema.channels[0].scope == "node"
    assert schema.channels[0].label == "memory in use"
    assert schema.channels[1] == Channel("of_the_future", "g")


@pytest.mark.parametrize("text", ["", "1x", "a{b}", 'a{b=~"c"}', 'a{b="c"', 'a{b="c"x="d"}'])
def test_a_selector_that_cannot_be_read_is_refused(text):
    with pytest.raises(SettingsError, match="is not a selector"):
        parse_selector(text)


def test_two_channels_of_one_name_are_refused():
    with pytest.raises(SettingsError, match="must differ"):
        Schema((Channel("user"), Channel("user")))
