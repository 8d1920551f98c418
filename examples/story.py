"""A live story: one conversation, stopped in three ways, steered, and asked; valid to go on with after each.

`python examples/story.py` plays it; no key is needed, the model is scripted.
"""

import argparse
import asyncio
import re
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NamedTuple

import anyio
from rich.console import Console
from rich.text import Text

from andon import Agent, Call, Message, Outcome, Point, Reasoning, Run, Stop, ToolContext, ToolStarted, tool
from andon.cli.report import print_history, print_report, results
from andon.cli.screen import Words
from andon.core.draft import Chunk
from andon.core.items import Event
from andon.ports import ModelRequest
from andon.runtime.isolate import run_to_end

PACE = 0.1 if "--fast" in sys.argv else 1.0  # how long a second of the story takes

SCRIPT: dict[str, list[Chunk]] = {
    "Plan three days in Lisbon.": [
        Reasoning("Three days, so one for each hill."),
        "On the first day take tram 28 up to Alfama, early, before everybody else, and walk down.",
    ],
    "Not Lisbon. Porto, by train. What is there?": [
        "Let me look at both. ",
        Call("find_trains", {"to": "Porto"}),
        Call("find_rooms", {"city": "Porto"}),
    ],
    "Take the 9:39, and the room.": [
        "I pay for the train and call the hotel. ",
        Call("pay", {"euros": 31}),
        Call("call_hotel", {"name": "Casa do Rio"}),
    ],
    "How do I get to the hotel?": [
        "From the station walk down to the river, cross the bridge, climb the 180 steps on the far side,",
    ],
    "With two suitcases?": ["Then take a taxi: ten minutes, 8 euros."],
    "And a table for tonight.": ["Let me ask around. ", Call("ask_concierge", {"request": "Two seats"})],
    "Two seats": [Call("reserve", {"seats": 2})],
    "reserve": ["They have two seats at eight."],
    "ask_concierge": ["You have two seats at eight, by the window."],
    "So what have I got?": [
        "The train is paid: the payment was let finish. Whether the hotel knows of you\n",
        "is not known, because that call was cut. I would ring them before you leave.",
    ],
}


async def model(request: ModelRequest) -> AsyncIterator[Chunk]:
    """Answer from the script, at the speed at which models talk."""
    last = request.messages[-1]
    for chunk in SCRIPT[last.text or last.results[-1].name]:
        for piece in re.findall(r"\S+\s*", chunk) if isinstance(chunk, str) else [chunk]:
            await anyio.sleep(0.08 * PACE)
            yield piece


@tool
async def find_trains(to: str) -> str:
    """Find trains."""
    await anyio.sleep(1.2 * PACE)
    return f"9:39 to {to}, 31 euros"


@tool
async def find_rooms(city: str) -> str:
    """Find rooms."""
    await anyio.sleep(0.7 * PACE)
    return f"Casa do Rio, {city}, 64 euros"


@tool(finish=True)
async def pay(euros: int) -> str:
    """Pay: half a payment is worse than none, so no stop cuts it."""
    await anyio.sleep(2.4 * PACE)
    return f"{euros} euros paid"


@tool
async def call_hotel(name: str) -> None:
    """Ring until somebody answers, and do not hear that it should stop."""
    while name:
        try:
            await anyio.sleep_forever()
        except asyncio.CancelledError:
            continue


@tool
async def reserve(seats: int, context: ToolContext) -> str:
    """Reserve a table, if somebody agrees to what it costs."""
    said = await context.interrupt(f"It costs {10 * seats} euros if you do not come. Reserve?")
    return f"{seats} seats at eight, by the window" if said == "yes" else "nothing reserved"


concierge = Agent(model, tools=[reserve], name="concierge", instructions="Knows the town.")
agent = Agent(
    model,
    tools=[find_trains, find_rooms, pay, call_hotel, concierge.as_tool(name="ask_concierge")],
    tool_grace=0.4 * PACE,
    name="trips",
)


class Cue(NamedTuple):
    """After which words or tool something happens, what is shown, and what is done to the run."""

    after: str
    shown: str
    act: Callable[[Run], object]


def stop(after: str, request: Stop, reason: str) -> Cue:
    """Stop the run."""
    return Cue(after, f"■ {reason}", lambda run: run.cancel(request, reason=reason, by="ada"))


def steer(after: str, words: str) -> Cue:
    """Say something to the run, now."""
    return Cue(after, f"> {words}", lambda run: run.steer(words, when="now"))


class Story:
    """One conversation, shown on a console."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.messages: tuple[Message, ...] = ()

    async def scene(self, title: str, prompt: str, cue: Cue | None = None) -> Outcome:
        """Ask, act on the cue, and show the report and what joined the history."""
        self.console.print(Text(f"\n{title}\n", "bold underline"), Text(f"> {prompt}", "bold cyan"), sep="")
        outcome = await self.show(agent.start(prompt, messages=self.messages), cue)
        added = outcome.messages[len(self.messages) :]
        if outcome.cancelled is not None:
            self.console.print()
            print_report(self.console, outcome.cancelled, results(added))
        if cue is not None:
            self.console.print(Text("\nand this joins the history:", "dim"))
            print_history(self.console, added)
        self.messages = outcome.messages
        return outcome

    async def show(self, run: Run, cue: Cue | None = None) -> Outcome:
        """Show a run to its end, and what it asks if it asks."""
        screen = Words(None, self.console, spins=not self.console.record)
        async with run:
            try:
                async for event in run:
                    screen.show(event)
                    if cue is not None and cue.after == name_of(event):
                        screen.notice(cue.shown)
                        cue.act(run)
            finally:
                screen.close()
            outcome = await run.outcome()
        if outcome.interrupts:
            screen.end(outcome, None)
        return outcome

    async def answer(self, asked: Outcome, answer: str) -> None:
        """Answer what the run waits for, after a moment of thought, and show how it goes on."""
        await anyio.sleep(1.5 * PACE)
        self.console.print(Text(f"> {answer}", "bold cyan"))
        answers = {question.id: answer for question in asked.interrupts}
        outcome = await self.show(agent.start_from(asked.checkpoint, answers=answers))
        self.messages = outcome.messages

    async def tell(self) -> None:
        """Tell all of it."""
        plan, look, book, way, suitcases, table, *_, ask = SCRIPT
        tools, within = Stop.at(Point.TOOLS), Stop.at(Point.TOOLS, grace=PACE)
        now = stop("before ", Stop.now(), "not Lisbon")
        await self.scene("1. Stop now, in the middle of an answer", plan, now)
        enough = stop("find_rooms", tools, "I know enough")
        await self.scene("2. Stop when both tools have ended", look, enough)
        hurry = stop("call_hotel", within, "I am in a hurry")
        await self.scene("3. The same, but within a second", book, hurry)
        await self.scene("4. Say something else instead", way, steer("steps ", suitcases))
        asked = await self.scene("5. An agent asks another, which asks you", table)
        await self.answer(asked, "yes")
        await self.scene("6. The conversation goes on", ask)


def name_of(event: Event) -> str:
    """Give what a cue knows an event by: the name of a tool, or some words."""
    return event.name if isinstance(event, ToolStarted) else getattr(event, "text", "")


def main() -> None:
    """Play the story; `--svg` draws it, too."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--fast", action="store_true", help="ten times as fast")
    options.add_argument("--svg", type=Path, help="draw what is shown, to this file")
    given = options.parse_args()
    console = Console(record=True, width=100, force_terminal=True) if given.svg else Console()
    try:
        run_to_end(Story(console).tell, grace=0.1)
    except KeyboardInterrupt:
        console.print("\nended by Ctrl-C; nothing of it is left running")
        raise SystemExit(130) from None
    if given.svg:
        picture = console.export_svg(title="make demo", unique_id="demo")
        given.svg.write_text(re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL))


if __name__ == "__main__":
    main()
