"""Real providers, cut at their first words: `make test-live`, with keys in the environment."""

import os
import time

import pytest

from andon import Agent, StopResult, TextDelta
from andon.core.items import ReasoningDelta

VARIABLE = "ANDON_LIVE_MODELS"
HOW = (
    f'set {VARIABLE} to the models to ask, as in {VARIABLE}="openai-chat:NAME,anthropic:NAME", and their keys'
)
MODELS = [name.strip() for name in os.environ.get(VARIABLE, "").split(",") if name.strip()]

pytestmark = pytest.mark.live


def test_there_are_models_to_ask() -> None:
    """Nothing is proven by asking nobody."""
    assert MODELS, HOW


@pytest.mark.parametrize("name", MODELS)
async def test_a_real_provider_is_cut_at_its_first_words(name: str) -> None:
    """The run stops at once, keeps what had come, and goes on when it is asked again."""
    agent = Agent(name, settings={"max_tokens": 2000})
    latency = 0.0
    async with agent.start("Count from 1 to 300, in words, one per line.") as run:
        async for event in run:
            if isinstance(event, TextDelta | ReasoningDelta) and not latency:
                asked = time.monotonic()
                report = await run.cancel()
                latency = time.monotonic() - asked
                assert report.result is StopResult.STOPPED
        outcome = await run.outcome()
    after = await agent.run("Thank you. Say only: yes.", messages=outcome.messages)

    assert outcome.stop_reason == "cancelled", outcome.error
    assert outcome.messages[-1].cut
    assert outcome.usage.input_tokens > 0
    assert latency < 1
    assert after.stop_reason == "end_turn", after.error
