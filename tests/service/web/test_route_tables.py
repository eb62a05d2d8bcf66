"""The tables of pages and API parts: every page answers with its title, and every change needs its role."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from tests.service import sample_state

from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.web import api, pages
from clustertwin.service.web.access import SAFE_METHODS, Guard
from clustertwin.service.web.binding import Binding
from clustertwin.service.web.contract import Page, RouteGroup

#: Names of the sample state, for addresses such as /nodes/{node}.
NAMES = {"node": "n1", "job": "17", "event_id": "e1"}
GROUPS: list[RouteGroup] = [*api.parts(), *pages.pages()]


@pytest.fixture
def client(app, tmp_path, stage):
    vars(stage).update(vars(sample_state.state(tmp_path)))
    yield TestClient(app, base_url="http://127.0.0.1")
    stage.store.close()


def routes(group: RouteGroup, state: ServiceState) -> list[APIRoute]:
    prefix = "" if isinstance(group, Page) else api.PREFIX
    router = group.router(state)
    for route in router.routes:
        assert isinstance(route, APIRoute)
        route.path = prefix + route.path
    return router.routes


def address(page: Page, state: ServiceState) -> str:
    """The page's own address: its first route."""
    return re.sub(r"{(\w+)(:path)?}", lambda name: NAMES[name[1]], routes(page, state)[0].path)


@pytest.mark.parametrize("package", [api, pages])
def test_every_module_with_routes_has_a_row(package):
    folder = Path(package.__file__).parent
    modules = {path.stem for path in folder.glob("*.py") if re.search(r"^(PAGE|ROUTES) = ", path.read_text(), re.M)}
    assert modules == set(package.PARTS if package is api else package.PAGES)


@pytest.mark.medium
@pytest.mark.parametrize("page", pages.pages(), ids=lambda page: page.title)
def test_a_page_answers_with_its_title(client, stage, page):
    answer = client.get(address(page, stage))
    assert answer.status_code == 200
    assert re.search(rf"<title>{page.title}\b.* · clustertwin</title>", answer.text)


@pytest.mark.parametrize("page", pages.pages(), ids=lambda page: page.title)
def test_a_page_with_a_key_is_in_the_navigation_bar(client, page):
    bar = re.search(r"<nav.*?</nav>", client.get("/").text, re.S)[0]
    link = re.search(rf'<a href="{page.path}"[^>]* data-key="g (\w)">{page.title}', bar)
    assert (link[1] if link else "") == page.key


def test_no_two_pages_have_the_same_key():
    keys = [page.key for page in pages.navigation()]
    assert len(set(keys)) == len(keys) > 0


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.paths[0])
def test_a_change_needs_the_role_of_its_row(stage, group):
    guard = Guard(None, stage, Binding(), GROUPS)
    for route in routes(group, stage):
        for method in route.methods - set(SAFE_METHODS):
            assert any(route.path == path or route.path.startswith(f"{path}/") for path in group.paths)
            assert guard.needed_role(route.path, method) == group.change_role


def test_only_the_login_page_is_public():
    assert [group.paths for group in GROUPS if group.public] == [("/login", "/logout")]
