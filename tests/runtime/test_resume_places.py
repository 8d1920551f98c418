"""Which run goes on from which checkpoint, where a call had started several, in any order."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import anyio

from andon import Agent, Call, Outcome, Stop, ToolContext, tool
from andon.core.checkpoint import Checkpoint
from andon.testing import Gate, ScriptedModel, virtual
from tests.family import Family, call, inside
from tests.whole import whole


def saved(outcome: Outcome) -> Checkpoint:
    """Give what it goes on from, as another process would read it."""
    assert outcome.checkpoint is not None
    return Checkpoint.from_json(outcome.checkpoint.to_json())


@virtual
async def test_in_whatever_order_they_come_back_each_agent_goes_on_from_its_own() -> None:
    """By name: what tasks and threads begin first need not be the same twice."""
    family, gate, order, paid = Family(), Gate(), ["a", "b", "a"], Counter[str]()

    @tool
    async def pay() -> str:
        """Pay."""
        paid["times"] += 1
        return "paid"

    agents = {
        name: family.agent(name, call("pay"), *more, tools=[pay])
        for name, more in {
            "a": ([gate, "never"], call("pay"), [gate, "never"]),
            "b": ([gate, "never"],),
        }.items()
    }

    @tool
    async def all_at_once() -> str:
        """Ask all of them."""
        said: list[str] = []

        async def one(name: str) -> None:
            said.append((await agents[name].run("go")).text)

        async with anyio.create_task_group() as tasks:
            for name in order:
                tasks.start_soon(one, name)
        return ", ".join(sorted(said))

    root = family.agent("root", call("all_at_once"), "Done.", tools=[all_at_once])
    family.models["a"].by_round = True
    family.models["a"].script(call("pay"), [gate, "never"])
    async with root.start("go") as run:
        await gate.reached(3)
        run.cancel(Stop.now(recursive=True))
        outcome = await whole(run)
    assert (inside(outcome.checkpoint), paid["times"]) == (["root", "a", "b", "a"], 3)
    order.sort(reverse=True)  # b, a, a
    family.models["a"].script(call("pay"), "a is done.")
    family.models["b"].script("b is done.")
    ended = await root.resume(saved(outcome))
    assert ended.messages[2].results[0].content == "a is done., a is done., b is done."
    assert (ended.text, paid["times"]) == ("Done.", 3)


@virtual
async def test_cut_again_before_all_came_back_each_is_kept_as_it_was() -> None:
    """The one that had come back in front of the other has its own newer state."""
    family, gate, order = Family(), Gate(), ["a", "b"]
    agents = {name: family.agent(name, [gate, "never"], [gate, "never"]) for name in order}

    @tool
    async def both() -> str:
        """Ask both, as ever they come."""
        async with anyio.create_task_group() as tasks:
            for name in order:
                tasks.start_soon(agents[name].run, "go")
        return "unreachable"

    root = family.agent("root", call("both"), "Done.", tools=[both])
    async with root.start("go") as run:
        await gate.reached(2)
        run.cancel(Stop.now(recursive=True))
        outcome = await whole(run)
    order.remove("a")
    async with root.start_from(saved(outcome)) as run:
        await gate.reached(3)
        run.cancel(Stop.now(recursive=True))
        outcome = await whole(run)
    assert inside(outcome.checkpoint) == ["root", "b", "a"]


async def test_agents_in_foreign_threads_go_on_though_another_thread_is_first() -> None:
    """Each thread is linked by `context.child()`, and has an event loop of its own."""
    family, gates, order = Family(), {"a": Gate("a"), "b": Gate("b")}, ["a", "b"]
    agents = {name: family.agent(name, [gates[name], f"{name} is done."]) for name in gates}

    @tool
    def both(context: ToolContext) -> str:
        """Ask each in a thread; the second begins once the first has asked its model."""

        def one(name: str) -> str:
            async def ask() -> str:
                return (await agents[name].run("go")).text

            with context.child():
                return anyio.run(ask)

        with ThreadPoolExecutor() as threads:
            first = threads.submit(one, order[0])
            gates[order[0]].wait_reached()
            return ", ".join([threads.submit(one, order[1]).result(), first.result()])

    root = Agent(ScriptedModel(Call("both"), "Done."), tools=[both], name="root")
    async with root.start("go") as run:
        for gate in gates.values():
            await gate.reached()
        run.cancel(Stop.now(recursive=True))
        outcome = await whole(run)
    assert inside(outcome.checkpoint) == ["root", "a", "b"]
    order.reverse()
    for name in order:
        gates[name] = Gate(opened=True)
        family.models[name].script([gates[name], f"{name} is done."])
    ended = await root.resume(saved(outcome))
    assert ended.messages[2].results[0].content == "a is done., b is done."
