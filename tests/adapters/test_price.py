"""Price: what a provider's model costs is known from a table, a user's own prices go first."""

import pytest

from andon import Agent, Limits, Price, TextDelta, Usage, tool
from andon.adapters.models import ProviderModel, resolve
from andon.adapters.models.price import price
from andon.testing.provider import FakeProvider, Stall, Text, ToolCall
from tests.adapters.conftest import NAMES, using

KNOWN = ("openai-chat:gpt-4o", "openai-responses:gpt-4o", "openai:gpt-4o", "anthropic:claude-sonnet-4-5")
MILLION = 1_000_000


@tool
async def look() -> str:
    """Look."""
    return "nothing"


@pytest.mark.parametrize("name", [*KNOWN, "google:gemini-2.5-flash", "google-cloud:gemini-2.5-flash"])
def test_models_are_known_by_the_names_that_runs_use(name: str) -> None:
    """Output costs more than input, and what comes from a cache costs less."""
    read = price(name, Usage(input_tokens=1_000))
    written = price(name, Usage(output_tokens=1_000))
    cached = price(name, Usage(input_tokens=1_000, cache_read_tokens=1_000))
    assert read is not None
    assert written is not None
    assert cached is not None
    assert 0 < cached < read < written


def test_two_names_of_one_api_cost_the_same() -> None:
    """As what they name is the same model."""
    usage = Usage(input_tokens=123, output_tokens=45)
    assert len({price(name, usage) for name in KNOWN[:3]}) == 1


def test_twice_as_much_costs_twice() -> None:
    """And nothing costs nothing."""
    once, twice = Usage(input_tokens=500, output_tokens=50), Usage(input_tokens=1_000, output_tokens=100)
    cost = price("openai:gpt-4o", once)
    assert cost is not None
    assert price("openai:gpt-4o", twice) == pytest.approx(2 * cost)
    assert price("openai:gpt-4o", Usage()) == 0


@pytest.mark.parametrize("name", ["openai:no-such-model", "nobody:gpt-4o", "gpt-4o", "", ":"])
def test_what_the_table_does_not_know_has_no_cost(name: str) -> None:
    """None, which is not zero."""
    assert price(name, Usage(input_tokens=1, output_tokens=1)) is None


def test_counts_that_do_not_fit_each_other_have_no_cost() -> None:
    """A provider's slip must not end a run."""
    assert price("openai:gpt-4o", Usage(input_tokens=10, cache_read_tokens=100)) is None


@pytest.mark.filterwarnings("ignore:The model .* is deprecated:DeprecationWarning")  # one day each is
@pytest.mark.parametrize("name", ["openai-chat:gpt-4o", "openai:gpt-4o", "anthropic:claude-sonnet-4-5"])
async def test_a_run_costs_what_its_tokens_cost(provider: FakeProvider, name: str) -> None:
    """By the tokens that the provider has told."""
    provider.reply(Text("Hello."), usage=(1_000, 500))
    async for model in using(provider, name):
        outcome = await Agent(model).run("hi")
        assert outcome.usage.cost == model.price(Usage(input_tokens=1_000, output_tokens=500))
        assert outcome.usage.cost
        assert not outcome.usage.estimated


async def test_a_call_that_was_cut_is_priced_by_the_estimate(provider: FakeProvider) -> None:
    """The provider had told nothing: it costs what its characters are counted as."""
    provider.reply(Text("Once upon a time"), Stall())
    async for model in using(provider, "openai-chat:gpt-4o"):
        async with Agent(model).start("four score") as run:
            async for event in run:
                if isinstance(event, TextDelta):
                    run.cancel()
            outcome = await run.outcome()
        told = outcome.usage
        assert told.estimated
        assert (told.input_tokens, told.output_tokens) == (3, 4)
        assert told.cost == model.price(Usage(input_tokens=3, output_tokens=4))


async def test_a_limit_of_cost_holds_with_the_models_own_price(provider: FakeProvider) -> None:
    """The call that reaches it ends whole; none comes after it."""
    spent = Usage(input_tokens=100_000, output_tokens=10_000)
    for _ in range(9):
        provider.reply(ToolCall("look"), usage=(spent.input_tokens, spent.output_tokens))
    async for model in using(provider, "openai-chat:gpt-4o"):
        each = model.price(spent)
        assert each is not None
        outcome = await Agent(model, tools=[look], limits=Limits(cost=each * 2.5)).run("hi")
        assert (outcome.stop_reason, outcome.limit) == ("limit", f"cost {each * 2.5:g}")
        assert outcome.usage.cost == pytest.approx(3 * each)
        assert len(provider.exchanges) == 3


async def test_the_users_own_price_goes_before_the_table(provider: FakeProvider) -> None:
    """By the name as it was given to the agent; other names in the table do not matter."""
    prices = {"openai-chat:gpt-4o": Price(input=1, output=2), "gpt-4o": Price(input=99, output=99)}
    provider.reply(Text("Hello."), usage=(1_000, 500))
    async for model in using(provider, "openai-chat:gpt-4o"):
        outcome = await Agent(model, prices=prices).run("hi")
        assert outcome.usage.cost == pytest.approx((1_000 * 1 + 500 * 2) / MILLION)


async def test_a_price_by_name_is_found_for_a_model_that_is_given_by_name(provider: FakeProvider) -> None:
    """As most users give both."""
    name = NAMES["anthropic"]
    provider.reply(Text("Hello."), usage=(1_000, 500))
    outcome = await Agent(name, prices={name: Price(input=3, output=15)}).run("hi")
    assert outcome.usage.cost == pytest.approx((3_000 + 7_500) / MILLION)


async def test_a_model_that_nobody_knows_has_no_cost_and_reaches_no_limit_of_it(
    provider: FakeProvider, claude: ProviderModel
) -> None:
    """The other limits hold all the same."""
    assert resolve(NAMES["anthropic"]).price(Usage(input_tokens=1)) is None
    provider.reply(Text("Hello."), usage=(1_000, 500))
    outcome = await Agent(claude, limits=Limits(cost=0.000001)).run("hi")
    assert (outcome.usage.cost, outcome.stop_reason) == (None, "end_turn")
