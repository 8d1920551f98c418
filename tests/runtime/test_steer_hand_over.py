"""Steering a run that has handed over: who has the conversation now hears it, and the run keeps it."""

from random import Random

import anyio
import pytest

from andon import Agent, Call, Outcome, Point, Run, Stop, ToolContext, sequence, tool
from andon.core.checkpoint import Checkpoint
from andon.core.items import Steered
from andon.core.messages import Message
from andon.core.repair import UNKNOWN
from andon.core.steer import When
from andon.errors import ToolError
from andon.runtime.hooks import Moment
from andon.runtime.steering import SteerReceipt
from andon.testing import Gate, Yield, run_virtual, virtual
from andon.testing.conversation import problems
from tests.family import said
from tests.flows import Actor
from tests.whole import whole

NO_TOOL = "There is no tool 'nothing'. The tools are: hand_over_to_train."
WHENS: tuple[When, ...] = ("next", "idle", "now")


def over_to(name: str) -> Call:
    """Hand over."""
    return Call(f"hand_over_to_{name}", {"request": "Please help."})


async def ended(run: Run) -> Outcome:
    """Wait for the end; all that was heard by whoever had the conversation is in the run's history, once."""
    outcome = await whole(run)
    assert problems(outcome.messages) == []
    heard = [event.message async for event in run if isinstance(event, Steered)]
    assert [sum(one is message for one in outcome.messages) for message in heard] == [1] * len(heard)
    return outcome


@virtual
@pytest.mark.parametrize("when", WHENS)
async def test_who_took_over_hears_what_is_said_to_the_run(when: When) -> None:
    """With its next model call, at its end, or now; the one that handed over is not asked again."""
    gate = Gate()
    target = Actor("train", ["Drive", gate, " on."], "Then take the 9:39.")
    desk = Actor("desk", over_to("train"), hand_over=[target])
    async with desk.start("How?") as run:
        await gate.reached()
        receipt = run.steer("By train.", when=when)
        if when != "now":
            gate.open()
        outcome = await ended(run)
        events = [event async for event in run.events() if isinstance(event, Steered)]
    partial = "Drive" if when == "now" else "Drive on."
    assert target.heard == ["How?", "Please help.", partial, "By train."]
    assert said(outcome.messages) == [
        "How?",
        "hand_over_to_train",
        "Then take the 9:39.",
        "By train.",
        "Then take the 9:39.",
    ]
    assert (desk.asked, target.asked, outcome.text) == (1, 2, "Then take the 9:39.")
    told = await receipt
    assert [(event.id, event.at, event.n) for event in events] == [(receipt.id, told.at, told.n)]
    assert told.delivered


@virtual
@pytest.mark.parametrize("when", WHENS)
async def test_said_before_the_hand_over_it_is_heard_after_it(when: When) -> None:
    """While another tool of the round still works: the next model call is that of who takes over."""
    gate = Gate()

    @tool
    async def look() -> str:
        """Look."""
        await gate
        return "seen"

    target = Actor("train", "First.", "Second.")
    desk = Actor("desk", [Call("look"), over_to("train")], tools=[look], hand_over=[target])
    async with desk.start("How?") as run:
        await gate.reached()
        run.steer("By train.", when=when)
        gate.open()
        outcome = await ended(run)
    assert ("By train." in target.heard, outcome.text) == (True, "Second." if when == "idle" else "First.")
    assert desk.asked == 1


@virtual
async def test_down_a_chain_of_hand_overs_the_last_one_hears_it() -> None:
    """And every run on the way keeps it, so that each conversation is whole."""
    gate, histories = Gate(), list[list[str]]()
    last = Actor("last", [gate, "never"], "Last word.")
    middle = Actor("middle", over_to("last"), hand_over=[last])
    desk = Actor("desk", over_to("middle"), hand_over=[middle])

    def keep(moment: Moment) -> None:
        histories.append(said(moment.run.messages))

    middle.on("run_ended", keep)
    async with desk.start("How?") as run:
        await gate.reached()
        receipt = run.steer("By train.", when="now")
        outcome = await ended(run)
    assert last.heard[-1] == "By train."
    assert said(outcome.messages)[-2:] == histories[0][-2:] == ["By train.", "Last word."]
    assert (await receipt).delivered
    assert (desk.asked, middle.asked, last.asked) == (1, 1, 2)


@virtual
async def test_said_to_who_took_over_by_its_own_handle_it_stays_there() -> None:
    """What is said to both is heard by it together."""
    gate = Gate()
    target = Actor("train", [gate, "Well."], "Good.")
    desk = Actor("desk", over_to("train"), hand_over=[target])
    async with desk.start("How?") as run:
        await gate.reached()
        [child] = run.children
        receipts = [run.steer("To the run."), child.steer("To it alone.")]
        gate.open()
        outcome = await whole(run)
    assert target.heard[-2:] == ["To it alone.", "To the run."]
    assert said(outcome.messages)[-3:] == ["Good.", "To the run.", "Good."]
    assert [(await receipt).delivered for receipt in receipts] == [True, True]


@virtual
@pytest.mark.parametrize("stop", [Stop.now(), Stop.at(Point.TOOLS)], ids=["now", "tools"])
async def test_what_was_heard_before_a_stop_is_in_both_histories_and_there_after_a_resume(stop: Stop) -> None:
    """In the run's own, so that a prompt goes on from it; in a new process, who took over still knows it."""
    gates = Gate("first"), Gate("second")

    @tool
    async def look() -> str:
        """Look."""
        await gates[1]
        return "seen"

    def desk(*replies: str | Call | list[Gate | str]) -> tuple[Actor, Actor]:
        target = Actor("train", *replies, tools=[look])
        return Actor("desk", over_to("train"), "Desk.", hand_over=[target]), target

    agent, _ = desk([gates[0], "Well,"], Call("look"))
    async with agent.start("How?") as run:
        await gates[0].reached()
        run.steer("By train.", when="now")
        await gates[1].reached()
        run.cancel(stop)
        gates[1].open()
        outcome = await ended(run)
    assert outcome.stop_reason == "cancelled"
    assert said(outcome.messages)[2:] == [UNKNOWN, "By train.", "Cancelled by user"]
    assert outcome.checkpoint is not None
    agent, target = desk("Take the 9:39.")
    resumed = await agent.resume(outcome.checkpoint.to_json())
    assert "By train." in target.heard
    assert said(resumed.messages)[2:] == ["Take the 9:39.", "By train.", "Take the 9:39."]
    assert agent.asked == 0


@virtual
async def test_heard_by_one_that_fails_it_is_known_to_the_one_that_had_handed_over() -> None:
    """The conversation is back where it was, with what was said since; nothing is cut for it any more."""
    gate, cut = Gate(), list[bool]()
    target = Actor("train", [gate, "never"], ToolError("no trains"))
    desk = Actor("desk", over_to("train"), Call("nothing"), "Then walk.", hand_over=[target])

    def note(moment: Moment) -> None:
        cut.append(moment.cut)

    desk.on("after_model", note)
    async with desk.start("How?") as run:
        await gate.reached()
        run.steer("By train.", when="now")
        outcome = await ended(run)
    assert desk.heard[-3:] == ["By train.", "", ""]
    assert said(outcome.messages)[3:] == ["By train.", "nothing", NO_TOOL, "Then walk."]
    assert cut == [False, False, False]


@virtual
async def test_not_heard_by_one_that_fails_it_is_heard_by_the_one_that_had_handed_over() -> None:
    """Once, and what was said now cuts nothing that is asked later."""
    gate = Gate()

    @tool
    async def look() -> str:
        """Look."""
        await gate
        raise RuntimeError

    target = Actor("train", Call("look"), tools=[look])
    target.on("after_tool", broken)
    desk = Actor("desk", over_to("train"), "Then walk.", hand_over=[target])
    async with desk.start("How?") as run:
        await gate.reached()
        receipt = run.steer("By train.", when="now")
        gate.open()
        outcome = await ended(run)
    assert said(outcome.messages)[-2:] == ["By train.", "Then walk."]
    assert ((await receipt).delivered, desk.asked, target.asked) == (True, 2, 1)


def broken(_moment: Moment) -> None:
    """Fail."""
    raise RuntimeError


@virtual
async def test_a_workflow_that_took_over_cannot_hear_and_the_one_that_handed_over_does() -> None:
    """It has no model of its own; so the run answers when the workflow has."""
    gate = Gate()
    desk = Actor(
        "desk",
        over_to("trips"),
        "By train, then.",
        hand_over=[sequence(Actor("a", [gate, "Car."]), name="trips")],
    )
    async with desk.start("How?") as run:
        await gate.reached()
        run.steer("By train.", when="now")
        gate.open()
        outcome = await ended(run)
    assert said(outcome.messages)[-3:] == ["Car.", "By train.", "By train, then."]


@virtual
async def test_an_agent_behind_a_tool_does_not_hear_what_is_said_to_its_parent() -> None:
    """It has a conversation of its own; so has an agent that who took over asks."""
    gate = Gate()
    helper = Actor("helper", [gate, "Helped."])
    target = Actor(
        "train", Call("helper", {"request": "help"}), "Done.", tools=[helper.as_tool(description="Help.")]
    )
    desk = Actor("desk", over_to("train"), hand_over=[target])
    async with desk.start("How?") as run:
        await gate.reached()
        run.steer("By train.", when="now")
        gate.open()
        await ended(run)
    assert (helper.asked, helper.heard, target.heard[-1]) == (1, ["help"], "By train.")


@virtual
async def test_the_hooks_of_both_are_told_of_the_message() -> None:
    """Of whoever hears it at once, of the run when the round ends."""
    gate, told = Gate(), list[tuple[str, str]]()

    def note(name: str) -> "Noted":
        return Noted(name, told)

    target = Actor("train", [gate, "never"], "Good.")
    desk = Actor("desk", over_to("train"), hand_over=[target])
    target.on("message_added", note("train"))
    desk.on("message_added", note("desk"))
    async with desk.start("How?") as run:
        await gate.reached()
        run.steer("By train.", when="now")
        await ended(run)
    assert told[-5:] == [
        ("train", "By train."),
        ("train", "Good."),
        ("desk", ""),
        ("desk", "By train."),
        ("desk", "Good."),
    ]


class Noted:
    """Notes each message."""

    def __init__(self, name: str, told: list[tuple[str, str]]) -> None:
        self._name = name
        self._told = told

    def __call__(self, moment: Moment) -> None:
        """Note it."""
        assert moment.message is not None
        self._told.append((self._name, moment.message.text))


@virtual
async def test_one_that_took_over_and_asks_a_human_keeps_what_it_had_heard() -> None:
    """The run's history has it while it waits, and the answer goes on from there."""
    gate = Gate()

    @tool
    async def confirm(context: ToolContext) -> str:
        """Ask."""
        return str(await context.interrupt("sure?"))

    target = Actor("train", [gate, "never"], Call("confirm"), "Good.", tools=[confirm])
    desk = Actor("desk", over_to("train"), hand_over=[target])
    async with desk.start("How?") as run:
        await gate.reached()
        run.steer("By train.", when="now")
        outcome = await ended(run)
    assert (outcome.stop_reason, "By train." in said(outcome.messages)) == ("interrupt", True)
    kept = Checkpoint.from_json((outcome.checkpoint or Checkpoint(version=0, run_id="", agent="")).to_json())
    assert kept.heard == (Message.user("By train."),)
    [question] = outcome.interrupts
    ended_ = await desk.resume(kept, answers={question.id: "yes"})
    assert said(ended_.messages)[-3:] == ["Good.", "By train.", "Good."]


@pytest.mark.parametrize("seed", range(50))
def test_in_any_interleaving_it_is_heard_once_or_told_undelivered(seed: int) -> None:
    """Down a chain of hand-overs, said at any moment in every way, with a stop or without, and resumed."""
    run_virtual(lambda: one_story(Random(seed)))  # noqa: S311 — a seeded story


async def one_story(chance: Random) -> None:
    """Let three agents hand over to each other while somebody talks to the run."""
    desk = chain(chance)
    receipts: dict[str, SteerReceipt] = {}

    async def talk(run: Run) -> None:
        for number in range(chance.randrange(1, 5)):
            await turns(chance, 12)
            receipts[f"said {number}"] = run.steer(f"said {number}", when=chance.choice(WHENS))
        await turns(chance, 12)
        if chance.random() < 0.5:
            run.cancel(chance.choice([Stop.now(), Stop.graceful(), Stop.gently(), Stop.at(Point.TOOLS)]))

    async with desk.start("How?") as run:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(talk, run)
        outcome = await ended(run)
    delivered = [(await receipt).delivered for receipt in receipts.values()]
    assert [said(outcome.messages).count(name) for name in receipts] == delivered
    if outcome.checkpoint is not None:
        resumed = await desk.resume(outcome.checkpoint.to_json())
        assert problems(resumed.messages) == []
        assert [said(resumed.messages).count(name) for name in receipts] == delivered


def chain(chance: Random) -> Agent:
    """Make an agent that may hand over to one that may hand over to a third."""

    @tool
    async def look() -> str:
        """Look."""
        await turns(chance, 4)
        return "seen"

    agent: Agent | None = None
    for name in ("last", "middle", "desk"):
        ways = [Call("look"), "Done."] if agent is None else [Call("look"), "Done.", over_to(agent.name)]
        replies = [[Yield(), "Well", Yield(), chance.choice(ways)] for _ in range(40)]
        agent = Actor(name, *replies, tools=[look], hand_over=[] if agent is None else [agent])
    assert agent is not None
    return agent


async def turns(chance: Random, most: int) -> None:
    """Let the loop turn a few times."""
    for _ in range(chance.randrange(most)):
        await anyio.lowlevel.checkpoint()
