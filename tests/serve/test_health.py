"""Health: whether it lives and can work, what Prometheus reads, and the pages."""

import re

import msgspec
import pytest

from andon.runtime.memory import MemorySubstrate
from andon.serve import page
from andon.serve.reference import STYLE
from tests.serve.scene import FREE, S1, scene


async def test_it_lives_and_is_ready() -> None:
    """Both say so."""
    async with scene() as s:
        for path in ("/healthz", "/readyz"):
            answer = await s.client.get(path)
            assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


async def test_while_it_shuts_down_it_lives_but_is_not_ready() -> None:
    """So that requests are sent elsewhere."""
    async with scene(msgspec.structs.replace(FREE, drain_grace=0.2)) as s:
        s.server.worker.drain()
        assert (await s.client.get("/healthz")).status_code == 200
        answer = await s.client.get("/readyz")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert "shuts down" in answer.json()["detail"]


async def test_without_its_substrate_it_lives_but_is_not_ready() -> None:
    """It says what is the matter, and requests fail as 503."""
    async with scene() as s:
        await s.server.office.substrate.__aexit__(None, None, None)
        answer = await s.client.get("/readyz")
        assert (answer.status_code, "the substrate is closed" in answer.json()["detail"]) == (503, True)
        assert (await s.client.get(S1)).status_code == 503


async def test_metrics_count_runs_stops_and_readers() -> None:
    """In the text format, each value with its type before it."""
    async with scene() as s:
        await s.begin()
        await s.post(f"{S1}/runs", input="hello", wait=30)
        await s.push_and_wait()
        await s.client.post(f"{S1}:cancel")
        await s.push_and_wait()
        answer = await s.client.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        values = dict(line.rsplit(" ", 1) for line in answer.text.splitlines() if not line.startswith("#"))
        assert values['andon_runs{state="finished"}'] == "1"
        assert values['andon_runs{state="running"}'] == "1"
        assert values['andon_stops{source="user",result="STOPPED"}'] == "1"
        assert values['andon_stop_latency_seconds_bucket{le="+Inf"}'] == "1"
        assert values["andon_stop_latency_seconds_count"] == "1"
        assert (values["andon_sessions_quarantined"], values["andon_sessions_busy"]) == ("0", "1")
        assert values["andon_streams"] == "0"
        kinds = set(re.findall(r"^# TYPE (\S+) (?:gauge|histogram)$", answer.text, re.MULTILINE))
        told = {name.partition("{")[0] for name in values}
        assert kinds == {re.sub("_(bucket|sum|count)$", "", name) for name in told}


async def test_the_reference_is_a_page_without_a_script() -> None:
    """It names every route, and its policy lets nothing in but its own style."""
    async with scene() as s:
        answer = await s.client.get("/docs")
        assert answer.headers["content-type"].startswith("text/html")
        assert "<script" not in answer.text
        assert f"<style>{STYLE}</style>" in answer.text
        assert answer.headers["content-security-policy"].startswith("default-src 'none'; style-src 'sha256-")
        described = (await s.client.get("/openapi.json")).json()
        assert all(path in answer.text for path in described["paths"])


async def test_the_description_names_only_what_it_describes() -> None:
    """Every reference leads somewhere, and every answer has a shape."""
    async with scene() as s:
        text = (await s.client.get("/openapi.json")).text
        described = msgspec.json.decode(text)
        schemas = described["components"]["schemas"]
        assert set(re.findall(r"#/components/schemas/(\w+)", text)) <= set(schemas)
        assert schemas["Point"]["maximum"] == 7
        assert "HTTPValidationError" not in schemas


async def test_the_files_of_the_console_are_served_with_their_policy(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """As they are, with their types, and nothing that is not there."""
    folder = tmp_path_factory.mktemp("console")
    (folder / "index.html").write_text("<!doctype html><title>Andon</title>")
    (folder / "parts").mkdir()
    (folder / "parts" / "list.js").write_text("export const one = 1")
    (folder / "notes.txt").write_text("not served")
    async with scene() as s:
        app = s.server.config.app
        page.add_page(app, folder)  # pyright: ignore[reportArgumentType]
        index = await s.client.get("/")
        assert (index.status_code, index.headers["content-type"]) == (200, "text/html; charset=utf-8")
        policy = index.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        script = await s.client.get("/parts/list.js")
        assert script.headers["content-type"] == "text/javascript; charset=utf-8"
        for path in ("/notes.txt", "/parts/../../app.py", "/parts", "/index.html"):
            assert (await s.client.get(path)).status_code == 404


class Broken(MemorySubstrate):
    """A substrate with a bug."""

    async def rows(self) -> list[bytes]:
        """Fail."""
        raise ZeroDivisionError("secret words")


async def test_a_bug_is_a_problem_that_tells_no_secrets(caplog: pytest.LogCaptureFixture) -> None:
    """500; the log says which."""
    async with scene(substrate=Broken()) as s:
        answer = await s.client.get("/runs")
        assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json")
        assert "secret" not in answer.text
        assert (await s.client.get("/healthz")).status_code == 200
    assert "GET /runs failed: a bug of Andon" in caplog.text
