"""Cost: each model call costs what its own model costs, by the user's table or by the model itself."""

import pytest

from andon import Agent, Call, Limits, ModelError, Price, Usage, tool
from andon.core.items import ModelEnded
from andon.testing import Gate, Hang, ScriptedModel, virtual
from tests.whole import whole

CHEAP = Price(input=1_000_000, output=2_000_000)  # one and two a token
DEAR = Price(input=10_000_000, output=20_000_000)
TOLD = Usage(input_tokens=3, output_tokens=2)


@tool
async def work() -> str:
    """Work."""
    return "done"


class Priced(ScriptedModel):
    """A model that knows its own price, as those of the providers do."""

    def price(self, usage: Usage) -> float | None:
        """Give what some usage costs: one, whatever it was."""
        return 1.0 if usage.output_tokens else None


@virtual
async def test_the_table_prices_models_by_their_names() -> None:
    """Each call is priced, and the run's cost is their sum."""
    model = ScriptedModel([TOLD, Call("work")], [TOLD, "Done."], name="cheap")
    async with Agent(model, tools=[work], prices={"cheap": CHEAP, "dear": DEAR}).start("go") as run:
        outcome = await whole(run)
        costs = [event.usage.cost async for event in run if isinstance(event, ModelEnded)]
    assert costs == [7, 7]
    assert outcome.usage.cost == 14


@virtual
async def test_a_plain_function_is_priced_by_its_own_name() -> None:
    """As it stands in the record."""

    async def my_model(_: object):  # noqa: ANN202 - as users write it
        yield "Done."
        yield TOLD

    assert (await Agent(my_model, prices={"my_model": CHEAP}).run("go")).usage.cost == 7


@virtual
async def test_a_model_whose_price_nobody_knows_has_no_cost() -> None:
    """None is not zero."""
    model = ScriptedModel([TOLD, Call("work")], [TOLD, "Done."], name="new")
    outcome = await Agent(model, tools=[work], prices={"old": CHEAP}).run("go")
    assert (outcome.stop_reason, outcome.usage.cost) == ("end_turn", None)


@virtual
@pytest.mark.parametrize("told", [[TOLD], []], ids=["tokens", "nothing"])
async def test_a_limit_of_cost_that_cannot_be_counted_stops_the_run_and_says_what_is_missing(
    told: list[Usage],
) -> None:
    """It would bound nothing, without a word; with the price, the run goes on."""
    model = ScriptedModel([*told, Call("work")], [TOLD, "Done."], name="new")
    agent = Agent(model, tools=[work], name="buyer", limits=Limits(cost=1000))
    async with agent.start("go") as run:
        outcome = await whole(run)
    assert outcome.stop_reason == "limit"
    assert outcome.limit == (
        "cost 1000: nobody knows what an answer of the model of 'buyer' cost: "
        "give that agent prices={name: Price(…)}"
    )
    assert outcome.checkpoint is not None
    priced = Agent(model, tools=[work], limits=Limits(cost=1000), prices={"new": CHEAP})
    again = await priced.resume(outcome.checkpoint)
    assert (again.text, again.usage.cost) == ("Done.", 7)


@virtual
async def test_the_limit_of_cost_of_a_run_needs_the_prices_of_its_children() -> None:
    """Who pays for the tree is told which agent lacks one; a child without that limit needs none."""
    inner = ScriptedModel([TOLD, Call("work")], [TOLD, "Helped."], name="new")
    helper = Agent(inner, name="helper", tools=[work]).as_tool(description="Help.")
    model = ScriptedModel([TOLD, Call("helper", {"request": "help"})], "never", name="cheap")
    agent = Agent(model, tools=[helper], prices={"cheap": CHEAP}, limits=Limits(cost=77))
    async with agent.start("go") as run:
        outcome = await whole(run)
    assert outcome.limit is not None
    assert outcome.limit.startswith("cost 77: nobody knows what an answer of the model of 'helper' cost")
    assert (outcome.usage.cost, len(inner.requests), len(model.requests)) == (7, 1, 1)


@virtual
async def test_an_answer_whose_cost_nobody_knows_is_an_answer() -> None:
    """A limit is looked at before the next call, and there is none."""
    outcome = await Agent(ScriptedModel([TOLD, "Done."], name="new"), limits=Limits(cost=1)).run("go")
    assert (outcome.stop_reason, outcome.text) == ("end_turn", "Done.")


@virtual
async def test_a_model_that_tells_its_cost_may_fail_and_be_asked_again_under_a_limit() -> None:
    """What an attempt without an answer has cost, it could not tell."""
    told = Usage(input_tokens=3, output_tokens=2, cost=0.25)
    model = ScriptedModel(ModelError("busy", transient=True), [told, Call("work")], [told, "Done."])
    outcome = await Agent(model, tools=[work], limits=Limits(cost=1)).run("go")
    assert (outcome.text, outcome.usage.cost) == ("Done.", 0.5)


@virtual
async def test_a_model_may_know_its_own_price() -> None:
    """It is asked for each call; the table goes before it."""
    replies = ([TOLD, Call("work")], [TOLD, "Done."])
    outcome = await Agent(Priced(*replies), tools=[work]).run("go")
    assert outcome.usage.cost == 2
    outcome = await Agent(Priced(*replies, name="mine"), tools=[work], prices={"mine": CHEAP}).run("go")
    assert outcome.usage.cost == 14


@virtual
async def test_a_model_may_tell_a_cost_with_its_usage() -> None:
    """It stands where no price is known."""
    told = Usage(input_tokens=3, output_tokens=2, cost=0.25)
    assert (await Agent(ScriptedModel([told, "Done."])).run("go")).usage.cost == 0.25
    priced = Agent(ScriptedModel([told, "Done."], name="cheap"), prices={"cheap": CHEAP})
    assert (await priced.run("go")).usage.cost == 7


@virtual
async def test_a_call_that_was_cut_costs_what_it_is_estimated_at() -> None:
    """Four characters a token, as they were sent and had come."""
    answer = Gate("model")
    model = ScriptedModel(["x" * 12, answer], name="cheap")
    async with Agent(model, prices={"cheap": CHEAP}).start("y" * 8) as run:
        await answer.reached()
        run.cancel()
        outcome = await whole(run)
    assert outcome.usage == Usage(input_tokens=2, output_tokens=3, cost=8, model_calls=1, estimated=True)


@virtual
async def test_a_call_that_was_cut_by_a_steer_reaches_a_limit_as_any_other() -> None:
    """What it has burnt is spent."""
    answer = Gate("model")
    model = ScriptedModel(["x" * 400, answer], "never", name="cheap")
    async with Agent(model, prices={"cheap": CHEAP}, limits=Limits(cost=100)).start("go") as run:
        await answer.reached()
        run.steer("hm", when="now")
        outcome = await whole(run)
    assert (outcome.stop_reason, outcome.limit, outcome.usage.cost) == ("limit", "cost 100", 201)


@virtual
async def test_a_model_that_would_not_let_go_is_priced_when_it_is_left() -> None:
    """Once, by what it had said until then."""
    late = Gate("late")

    async def stubborn(_: object):  # noqa: ANN202 - as users write it
        yield "x" * 4
        try:
            yield Usage(input_tokens=1)
            await Gate("for ever")
        finally:
            await late
        yield Usage(input_tokens=999, output_tokens=999)

    agent = Agent(stubborn, prices={"stubborn": CHEAP}, tool_grace=1)
    async with agent.start("go") as run:
        async for event in run:
            if type(event).__name__ == "TextDelta":
                run.cancel()
        outcome = await whole(run)
    late.open()
    assert (outcome.usage.cost, run.usage.cost) == (3, 3)


@virtual
async def test_each_attempt_and_each_model_has_its_own_price() -> None:
    """Retries cost, and the fallback is no bargain."""
    busy = ModelError("busy", transient=True)
    first = ScriptedModel([TOLD, busy], [TOLD, busy], name="cheap")
    second = ScriptedModel([TOLD, "Done."], name="dear")
    agent = Agent(first, fallback=[second], retries=1, prices={"cheap": CHEAP, "dear": DEAR})
    async with agent.start("go") as run:
        outcome = await whole(run)
        costs = [event.usage.cost async for event in run if isinstance(event, ModelEnded)]
    assert costs == [7, 7, 70]
    assert (outcome.text, outcome.usage.cost, outcome.usage.model_calls) == ("Done.", 84, 1)


@virtual
async def test_a_child_costs_what_its_own_agent_says() -> None:
    """Each agent has a table of its own; the sum is the run's, and its limit counts it."""
    inner = ScriptedModel([TOLD, "Helped."], name="dear")
    helper = Agent(inner, name="helper", prices={"dear": DEAR}).as_tool(description="Help.")
    model = ScriptedModel([TOLD, Call("helper", {"request": "help"})], "never", name="cheap")
    agent = Agent(model, tools=[helper], prices={"cheap": CHEAP}, limits=Limits(cost=77))
    async with agent.start("go") as run:
        outcome = await whole(run)
    assert (outcome.limit, outcome.usage.cost) == ("cost 77", 77)


@virtual
async def test_what_a_resumed_run_costs_comes_on_top() -> None:
    """The checkpoint knows what was paid."""
    model = ScriptedModel([TOLD, Call("work")], [TOLD, Hang()], [TOLD, "Done."], name="cheap")
    agent = Agent(model, tools=[work], prices={"cheap": CHEAP}, limits=Limits(cost=7))
    first = await agent.run("go")
    assert (first.limit, first.usage.cost) == ("cost 7", 7)
    assert first.checkpoint is not None
    model.script([TOLD, "Done."])
    again = await agent.resume(first.checkpoint.to_json(), limits=Limits(cost=14.5))
    assert (again.text, again.usage.cost) == ("Done.", 14)
