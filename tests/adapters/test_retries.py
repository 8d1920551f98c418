"""What a provider refuses or drops is tried again where that helps, and told in its own words where not."""

import asyncio

import pytest

from andon import Agent, Message, ModelError, Outcome, tool
from andon.adapters.models import ProviderModel, resolve
from andon.core.items import ModelEnded, ModelStarted
from andon.ports import ModelRequest
from andon.testing.provider import Drop, Fail, FakeProvider, Part, Stall, Text, ToolCall

SOON = 0.001
ASK = ModelRequest((Message.user("hi"),))


@tool
async def search(query: str) -> str:
    """Search the catalogue."""
    return f"{query}!"


async def failure_of(model: ProviderModel) -> ModelError:
    """Ask, and give the error."""
    with pytest.raises(ModelError) as raised:
        _ = [chunk async for chunk in model(ASK)]
    return raised.value


async def test_a_busy_provider_is_asked_again_when_it_says(
    provider: FakeProvider, model: ProviderModel
) -> None:
    """The wait is the one it asked for, and the library does not retry on its own."""
    provider.reply(Fail(429, retry_after=SOON))
    provider.reply(Fail(529, retry_after=SOON))
    provider.reply(Text("Here."))
    outcome = await Agent(model).run("hi")

    assert outcome.messages[-1].text == "Here."
    assert [exchange.status for exchange in provider.exchanges] == [429, 529, 200]


async def test_it_gives_up_after_the_retries(provider: FakeProvider, model: ProviderModel) -> None:
    """As many requests as the agent allows, and not one more."""
    for _ in range(3):
        provider.reply(Fail(503, "we are moving house", retry_after=SOON))
    outcome = await Agent(model, retries=1).run("hi")

    assert outcome.stop_reason == "error"
    assert "we are moving house" in str(outcome.error)
    assert len(provider.exchanges) == 2


@pytest.mark.parametrize("status", [408, 409, 429, 500, 503, 529])
async def test_what_may_pass_is_transient(provider: FakeProvider, claude: ProviderModel, status: int) -> None:
    """Time-outs, conflicts, limits, and whatever is the server's fault."""
    provider.reply(Fail(status, retry_after=2.5))
    error = await failure_of(claude)

    assert error.transient
    assert error.retry_after == 2.5


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
async def test_what_will_not_pass_is_told_at_once(
    provider: FakeProvider, model: ProviderModel, status: int
) -> None:
    """One request; the provider's words, the status and the model are in the message."""
    provider.reply(Fail(status, "you may not do this"))
    outcome = await Agent(model).run("hi")

    assert outcome.stop_reason == "error"
    assert len(provider.exchanges) == 1
    for part in ("you may not do this", str(status), model.name):
        assert part in str(outcome.error)


async def test_a_spent_quota_is_not_asked_again(
    provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the status of a rate limit, but waiting does not help."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-fake")
    provider.reply(Fail(429, "no money", type="insufficient_quota"))
    model = resolve("openai-chat:gpt-4o")
    error = await failure_of(model)
    await model.aclose()

    assert not error.transient


@pytest.mark.parametrize("parts", [(Drop(before="headers"),), (Text("Once"), Drop())])
async def test_a_dropped_stream_is_tried_again(
    provider: FakeProvider, model: ProviderModel, parts: tuple[Part, ...]
) -> None:
    """What had come of it is forgotten."""
    provider.reply(*parts)
    provider.reply(Text("Here."))
    outcome = await Agent(model).run("hi")

    assert outcome.messages[-1].text == "Here."
    assert len(provider.exchanges) == 2


async def test_a_failure_inside_the_stream_is_tried_again(
    provider: FakeProvider, model: ProviderModel
) -> None:
    """It is told after a good status, in words only."""
    provider.reply(Text("Once"), Fail(500, "out of breath"))
    provider.reply(Text("Here."))
    async with Agent(model).start("hi") as run:
        ends = [event async for event in run if isinstance(event, ModelEnded)]
        outcome = await run.outcome()

    assert outcome.messages[-1].text == "Here."
    assert [event.end for event in ends] == ["failed", "complete"]
    assert "out of breath" in str(ends[0].error)


async def test_arguments_that_are_no_json_are_asked_for_again(
    provider: FakeProvider, model: ProviderModel
) -> None:
    """The tool never sees them."""
    provider.reply(ToolCall("search", '{"query": "co'))
    provider.reply(ToolCall("search", {"query": "cord"}))
    provider.reply(Text("Found."))
    outcome = await Agent(model, tools=[search]).run("hi")

    assert [result.content for result in outcome.messages[2].results] == ["cord!"]
    assert outcome.messages[-1].text == "Found."


async def test_bad_arguments_are_told_by_the_tools_name(
    provider: FakeProvider, claude: ProviderModel
) -> None:
    """JSON that is no object is as bad as no JSON."""
    provider.reply(ToolCall("search", "[1]"))
    error = await failure_of(claude)

    assert error.transient
    assert "search" in str(error)


async def test_the_next_model_is_asked_when_one_has_failed(
    provider: FakeProvider, model: ProviderModel
) -> None:
    """A fallback goes on with the same conversation."""
    provider.reply(Fail(404, "no such model"))
    provider.reply(Text("Here."))
    spare = resolve("anthropic:claude-spare")
    async with Agent(model, fallback=[spare]).start("hi") as run:
        names = [event.model async for event in run if isinstance(event, ModelStarted)]
        outcome = await run.outcome()
    await spare.aclose()

    assert outcome.messages[-1].text == "Here."
    assert names == [model.name, "anthropic:claude-spare"]


async def test_nobody_at_the_address_is_transient(
    provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is refused; the provider may come back."""
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:1")
    model = resolve("anthropic:claude-fake")
    error = await failure_of(model)
    await model.aclose()

    assert error.transient
    assert provider.exchanges == ()


async def test_a_key_is_never_in_a_message(provider: FakeProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if the provider repeats it."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a-very-secret-word")
    provider.reply(Fail(401, "bad key a-very-secret-word, and sk-proj-1234567890abc"))
    model = resolve("anthropic:claude-fake")
    error = await failure_of(model)
    await model.aclose()

    assert "bad key ***, and ***" in str(error)


async def test_the_same_failure_after_a_cancel_is_a_cut(
    provider: FakeProvider, claude: ProviderModel
) -> None:
    """Fails while it is being cut: the run is cancelled, not failed."""
    provider.reply(Stall(before="headers"), Fail(500))
    outcomes: list[Outcome] = []

    async def watch() -> None:
        async with Agent(claude).start("hi") as run:
            await provider.stalled(1)
            run.cancel()
            provider.release()
            outcomes.append(await run.outcome())

    async with asyncio.timeout(10):
        await watch()

    assert [outcome.stop_reason for outcome in outcomes] == ["cancelled"]
    assert len(provider.exchanges) == 1
