"""The routes: each exists once, every verb reaches its own handler, and ids are opaque and bounded."""

from collections import Counter

import pytest
from fastapi.routing import APIRoute
from starlette.routing import Match

from andon.serve.app import ROUTERS
from tests.serve.scene import ANN, S1, scene

ROUTES = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
VERBS = sorted({route.path_format.rpartition(":")[2] for route in ROUTES if ":" in route.path_format})
OF_SESSIONS = [
    route.path_format.rpartition(":")[2]
    for route in ROUTES
    if route.path_format.startswith("/apps") and "}:" in route.path_format
]


BODIES: dict[str, dict[str, object]] = {
    "push": {"input": "x"},
    "steer": {"input": "x"},
    "answer": {"answers": {}},
}


def handler(method: str, path: str) -> APIRoute:
    """Give the route that takes a request: the first that matches."""
    scope: dict[str, object] = {
        "type": "http",
        "method": method,
        "path": path,
        "root_path": "",
        "headers": [],
    }
    return next(route for route in ROUTES if route.matches(scope)[0] is Match.FULL)


def test_every_method_and_path_exists_once() -> None:
    """A second one would never be reached."""
    found = Counter((method, route.path_format) for route in ROUTES for method in route.methods or ())
    assert [one for one, count in found.items() if count > 1] == []


def test_there_are_the_verbs_of_the_house() -> None:
    """And no others."""
    assert VERBS == ["answer", "cancel", "pause", "push", "release", "resume", "steer", "stop"]


@pytest.mark.parametrize(
    "route", [route for route in ROUTES if ":" in route.path_format], ids=lambda r: r.path_format
)
def test_every_verb_reaches_its_own_handler(route: APIRoute) -> None:
    """Though a route that takes an id comes after it."""
    path = route.path_format.format(app="a", user="u", session="s", run="r")
    assert handler("POST", path) is route


@pytest.mark.parametrize("verb", sorted(set(OF_SESSIONS)))
async def test_no_verb_begins_a_session(verb: str) -> None:
    """On a session that is not there it is missing, and still is afterwards."""
    async with scene() as s:
        answer = await s.client.post(f"{S1}:{verb}", json=BODIES.get(verb))
        assert answer.status_code == 404, answer.text
        assert (await s.client.get(ANN)).json() == []


@pytest.mark.parametrize("session", ["s1:bogus", "a%20b", "a" * 129, "%C3%A9", "a%00b", "s%25"])
async def test_ids_of_other_signs_are_not_understood(session: str) -> None:
    """422, by every method."""
    async with scene() as s:
        for method in ("POST", "GET", "DELETE"):
            answer = await s.client.request(method, f"{ANN}/{session}")
            assert answer.status_code == 422, answer.text
        assert (await s.client.get(f"/runs/{session}")).status_code == 422


async def test_ids_of_all_allowed_signs_work() -> None:
    """At the longest, too."""
    async with scene() as s:
        for session in ("AZaz09_.@+=~-", "x" * 128):
            assert (await s.client.post(f"{ANN}/{session}")).json()["id"] == session
            assert (await s.client.post(f"{ANN}/{session}:cancel")).status_code == 200


async def test_what_is_not_there_is_a_problem_too() -> None:
    """Unknown paths and methods."""
    async with scene() as s:
        for method, path, status in (("GET", "/nope", 404), ("PUT", "/runs", 405)):
            answer = await s.client.request(method, path)
            assert (answer.status_code, answer.headers["content-type"]) == (
                status,
                "application/problem+json",
            )
            assert answer.json()["status"] == status
