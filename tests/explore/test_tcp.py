"""Stopped at any boundary, a run whose model answers over TCP keeps every promise, its connection too."""

from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing
from functools import partial

import anyio
import pytest
from typing_extensions import override

from andon import Agent, tool
from andon.adapters.models import ProviderModel, resolve
from andon.core.draft import Chunk
from andon.ports import ModelRequest
from andon.testing import MODES, Scenario, Scene, ScriptedModel, Tally, explore
from andon.testing.provider import Drip, FakeProvider, Part, Reasoning, Request, Text, ToolCall
from andon.testing.trial import NEXT_ANSWER
from tests.explore.scenarios import SHORT, SLOW
from tests.explore.test_scenarios import FAST_MODES, FULL

NAMES = ("openai-chat:gpt-4o", "openai:gpt-5", "anthropic:claude-fake")
BOUNDARIES = 6  # of some dozens are tried where there is little time
PROMPT = "Look into the box."


class Distant(ScriptedModel):
    """A provider's model, whose answers are counted as a scripted one's; what it says is the provider's."""

    def __init__(self, model: ProviderModel) -> None:
        super().__init__(name=model.name)
        self._model = model

    @override
    async def __call__(self, request: ModelRequest, /) -> AsyncGenerator[Chunk]:
        """Ask the provider."""
        self.opened += 1
        try:
            async with aclosing(self._model(request)) as chunks:
                async for chunk in chunks:
                    self.made += 1
                    self._tell("pull")
                    yield chunk
        finally:
            self.closed += 1
            self._tell("close")


def answer(request: Request) -> Iterable[Part]:
    """A thought, words and a call; then words that come slowly; to a second prompt, what the kit expects.

    Decided by the request alone: one that was cut may come late, and must not take another's answer.
    """
    if request.prompt != PROMPT:
        return [Text(NEXT_ANSWER)]
    if request.results:
        return [Text("It is "), Drip("quite ", times=2, interval=SHORT), Text("empty.")]
    return [Reasoning("Hm."), Text("Let me "), Text("see."), ToolCall("look", {"place": "box"}, chunks=3)]


def scene(name: str) -> Scene:
    """An agent with one tool, whose model is at the other end of a connection."""
    tally = Tally("look")

    @tool
    async def look(place: str) -> str:
        """Look somewhere."""
        with tally.of("look"):
            await anyio.sleep(SHORT)
        return f"{place} is empty"

    model = Distant(resolve(name))
    agent = Agent(model, tools=[look])
    return Scene(agent=agent, prompt=PROMPT, models=[model], tally=tally, within=SLOW)


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeProvider]:
    """Give a strict provider, to which the environment points."""
    with FakeProvider() as running:
        for name, value in running.environment.items():
            monkeypatch.setenv(name, value)
        running.respond(answer)
        yield running


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", NAMES)
def test_stopped_at_any_boundary_a_run_over_tcp_keeps_every_promise(
    provider: FakeProvider, name: str
) -> None:
    """The provider takes every history that is left, and no answer of it stays open."""
    scenario = Scenario(name=f"over TCP, {name}", make=partial(scene, name), foreign=True)
    found = explore(scenario, most=None if FULL else BOUNDARIES, modes=MODES if FULL else FAST_MODES)
    found.check()
    assert found.steps == 0
    assert found.boundaries > 12
    provider.until(lambda exchanges: all(one.closed_at is not None for one in exchanges)).wait()
    assert {exchange.status for exchange in provider.exchanges if exchange.status is not None} == {200}
