"""Who may: tokens, scopes, and sessions that only their user sees."""

from pathlib import Path

import pytest
from fastapi.routing import APIRoute

from andon.serve.app import ROUTERS
from tests.serve.scene import ANN, S1, Scene, guarded, until

BODIES: dict[str, object] = {
    ":push": {"input": "x"},
    "/runs": {"input": "x"},
    ":steer": {"input": "x"},
    ":answer": {"answers": {}},
}
ROUTES = [
    (method, route.path_format)
    for router in ROUTERS
    for route in router.routes
    if isinstance(route, APIRoute)
    for method in sorted(route.methods or ())
]
OF_SOMEBODY = [one for one in ROUTES if "{user}" in one[1] or "{run}" in one[1]]
OPEN = {"/healthz", "/readyz", "/docs"}
ADMINS = {"/runs:cancel", "/apps/{app}:cancel", "/metrics"}


def body(method: str, path: str) -> object:
    """Give a body that a route takes."""
    wanted = next((given for end, given in BODIES.items() if path.endswith(end)), None)
    return wanted if method == "POST" else None


def fill(path: str, run: str = "r") -> str:
    """Name what is Ann's."""
    return path.format(app="trips", user="ann", session="s1", run=run)


async def ask(s: Scene, method: str, path: str, by: str | None) -> tuple[int, str]:
    """Ask for something; gives the status and what is said of it."""
    headers = {} if by is None else s.by(by)
    answer = await s.client.request(method, path, json=body(method, path), headers=headers)
    return answer.status_code, answer.json().get("detail", "")


@pytest.mark.parametrize(("method", "path"), OF_SOMEBODY)
async def test_what_is_somebody_elses_is_missing(tmp_path: Path, method: str, path: str) -> None:
    """404, in the very words for what was never there."""
    async with guarded(tmp_path) as s:
        await s.begin(by="ann-laptop")
        run_id = await s.push_and_wait(by="ann-laptop")
        named, nothing = fill(path, run_id), fill(path, "f" * 32).replace("s1", "s9")
        status, detail = await ask(s, method, named, "bob-phone")
        assert status == 404, detail
        never_status, never = await ask(s, method, nothing, "bob-phone")
        assert (never_status, never.replace("s9", "s1").replace("f" * 32, run_id)) == (404, detail)
        assert s.cuts == 0


async def test_the_list_of_runs_holds_ones_own(tmp_path: Path) -> None:
    """All of them for an admin; somebody else's by name is missing."""
    async with guarded(tmp_path) as s:
        await s.begin(by="ann-laptop")
        run_id = await s.push_and_wait(by="ann-laptop")
        seen = {
            name: [row["run_id"] for row in (await s.client.get("/runs", headers=s.by(name))).json()["runs"]]
            for name in s.tokens
        }
        assert seen == {
            "ann-laptop": [run_id],
            "bob-phone": [],
            "eve-dashboard": [run_id],
            "root": [run_id],
        }
        assert (await ask(s, "GET", "/runs?user=ann", "bob-phone"))[0] == 404


@pytest.mark.parametrize(("method", "path"), [one for one in ROUTES if one[1] not in OPEN])
async def test_without_a_token_nothing_is_told(tmp_path: Path, method: str, path: str) -> None:
    """401, which says what to send; so is a token that nobody has."""
    async with guarded(tmp_path) as s:
        status, detail = await ask(s, method, fill(path), None)
        assert (status, "Authorization: Bearer" in detail) == (401, True)
        s.tokens["nobody"] = "andon_wrong"
        status, detail = await ask(s, method, fill(path), "nobody")
        assert (status, "nobody has this token" in detail) == (401, True)
        assert "wrong" not in detail


async def test_a_token_does_what_its_scopes_say(tmp_path: Path) -> None:
    """One that only reads runs and cancels nothing; 403 says what is lacking."""
    async with guarded(tmp_path) as s:
        await s.begin(by="ann-laptop")
        await s.push_and_wait(by="ann-laptop")
        assert (await ask(s, "GET", S1, "eve-dashboard"))[0] == 200
        for method, path, scope in (
            ("POST", f"{S1}/runs", "run"),
            ("POST", f"{S1}:cancel", "cancel"),
            ("POST", ANN, "run"),
            ("DELETE", S1, "cancel"),
        ):
            status, detail = await ask(s, method, path, "eve-dashboard")
            assert (status, f"needs the scope {scope}" in detail) == (403, True)
        assert s.cuts == 0


@pytest.mark.parametrize(("method", "path"), [one for one in ROUTES if one[1] in ADMINS])
async def test_what_reaches_everybody_is_for_admins(tmp_path: Path, method: str, path: str) -> None:
    """403 for anybody else."""
    async with guarded(tmp_path) as s:
        for name in ("ann-laptop", "bob-phone", "eve-dashboard"):
            assert (await ask(s, method, fill(path), name))[0] == 403
        answer = await s.client.request(method, fill(path), headers=s.by("root"))
        assert answer.status_code == 200


async def test_release_is_for_admins(tmp_path: Path) -> None:
    """Not for the user of the session."""
    async with guarded(tmp_path) as s:
        await s.begin(by="ann-laptop")
        assert (await ask(s, "POST", f"{S1}:release", "ann-laptop"))[0] == 403
        assert (await ask(s, "POST", f"{S1}:release", "root"))[0] == 409


async def test_causes_name_who_was_authenticated(tmp_path: Path) -> None:
    """Whatever was said; an admin may cancel anybody's."""
    async with guarded(tmp_path) as s:
        await s.begin(by="ann-laptop")
        run_id = await s.push_and_wait(by="ann-laptop")
        said = await s.post(f"{S1}:cancel", by="ann-laptop", by_whom="somebody else")
        assert said.status_code == 422
        report = (await s.post(f"{S1}:cancel", by="root")).json()
        assert report["causes"][0]["by"] == "root"
        row = (await s.client.get(f"/runs/{run_id}", headers=s.by("ann-laptop"))).json()
        assert row["by"] == "ann-laptop"


async def test_no_token_reaches_the_journal(tmp_path: Path) -> None:
    """Names do, and no more."""
    async with guarded(tmp_path) as s:
        await s.begin(by="ann-laptop")
        run_id = await s.push("hello", by="ann-laptop")
        async with s.events(f"{S1}/events", by="ann-laptop") as events:
            read = await until(events, "run_ended")
        assert run_id in str(read)
        assert not any(token in str(read) for token in s.tokens.values())
