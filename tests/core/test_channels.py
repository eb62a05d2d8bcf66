import pytest

from clustertwin.core.channels import CPU, NODE, Channel, Schema
from clustertwin.core.errors import SettingsError


def test_the_cpu_channels_are_one_simplex():
    assert CPU.simplexes == {"cpu": (0, 1, 2, 3)}
    assert CPU.bounded == ()


def test_node_channels_stand_beside_the_simplex():
    schema = CPU + NODE
    assert schema.bounded == (4, 5)
    assert schema.index("io_pressure") == 5


def test_a_schema_survives_json():
    assert Schema.from_json((CPU + NODE).to_json()) == CPU + NODE


def test_two_channels_of_one_name_are_refused():
    with pytest.raises(SettingsError, match="must differ"):
        Schema((Channel("user"), Channel("user")))
