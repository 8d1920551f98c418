"""Life: a turn loop on virtual time, whose callers, callbacks and agents do what a scene says."""
# pyright: reportPrivateUsage=false
# Tests of the whole look inside where a caller cannot.

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from functools import partial
from itertools import chain, repeat
from typing import TypeVar

import anyio
import pytest

from andon import Agent, Call, ModelError, Preempt, Stop, ToolContext, Turn, TurnLoop, tool
from andon.core.draft import Chunk
from andon.core.items import Event, Item, TurnEnded
from andon.core.outcome import Outcome
from andon.core.parked import unpark
from andon.core.turns import Phase
from andon.errors import Cancelled, Interrupted, LoopClosedError, RunStateError, UserError
from andon.ports import ModelRequest, Observer
from andon.runtime.isolate import turn as next_round
from andon.runtime.turn import Exit, Planning, TurnView
from andon.testing import Gate, VirtualLoop
from tests.machine.books import Booked, Books, Failure, Pushed, items_of, same
from tests.machine.scenes import Action, AskStop, How, Open, Pass, Push, Scene, Script, Tear
from tests.stores import MemoryStore

T = TypeVar("T")
ID = "machine"
HOLD = 3.0  # virtual seconds for which an agent ignores its cancellation
SLACK = 1e-6


class Life(Observer):
    """One loop, from its first push to its exit, and its books."""

    def __init__(
        self, scene: Scene, store: MemoryStore, numbers: "Callable[[], int]", *, exact: bool
    ) -> None:
        self.scene = scene
        self.store = store
        self.next_number = numbers
        stored = store.data.get(ID) if scene.keeps else None
        self.books = Books(exact=exact, requeues=scene.requeues, watched=scene.watches, stored=stored)
        self.has_flight = self.books.kept = self.books.load(stored) if stored else False
        self.flight = unpark(stored).turn if stored else None
        self.scripts = chain(scene.scripts, repeat(Script()))
        self.gates: list[Gate] = []
        self.finishing = False
        self.steps = 0
        self.wrong: list[BaseException] = []
        self.task: asyncio.Task[object] | None = None
        self.exits: list[Exit[int]] = []
        self.clock = asyncio.get_running_loop().time
        self.ended_at = 0.0
        self.agent = self._agent()
        self.loop: TurnLoop[int] = TurnLoop(
            gen_input=self.gen_input,
            prepare_agent=self.prepare_agent,
            on_events=self.on_events if scene.watches else None,
            gen_resume=self.gen_resume if scene.resumes else None,
            store=store if scene.keeps else None,
            checkpoint_id=ID if scene.keeps else None,
            codec=int,
            on_preempt="requeue" if scene.requeues else "discard",
            observers=[self],
        )
        if self.has_flight and not scene.resumes:
            self.books.unload()  # it is refused
            self.books.reasons.append(UserError)

    # What callers do.

    def do(self, action: Action) -> None:
        """Carry an action out, in whatever thread."""
        self.steps += 1
        match action:
            case Push():
                self.push(action)
            case AskStop(_, stop, idle, cause, skips):
                self.stop(stop, idle=idle, cause=cause, skips=skips)
            case Open():
                self.open()
            case Tear():
                self.tear()
            case Pass():
                pass

    def push(self, action: Push) -> None:
        """Push an item, and book what it saw."""
        item, books = self.next_number(), self.books
        turn, committed = self.loop.turn, books.committed or bool(self.exits)
        before = self.loop._desk.state.turn
        saw: tuple[int, ...] = (0 if turn is None else turn.number,)

        def decide(seen: TurnView[int] | None, phase: Phase) -> Preempt | None:
            nonlocal saw
            saw = (0 if seen is None else seen.number,)
            if action.strategy == "fails":
                raise Failure
            if books.exact:
                assert seen is turn
                assert phase is self.loop._desk.state.phase
            return action.preempt

        try:
            if action.strategy:
                receipt = self.loop.push(item, strategy=decide)
            else:
                receipt = self.loop.push(item, preempt=action.preempt)
        except Failure:
            return
        if not (books.exact or action.strategy):
            saw = (0, *range(before, self.loop._desk.state.turn + 1))
        books.take(Pushed(item, receipt, action.preempt, saw, committed), self.clock())

    def stop(self, stop: Stop | None, *, idle: float | None, cause: str | None, skips: bool) -> None:
        """Stop the loop, and book what must come of it."""
        books = self.books
        if not self.exits:
            books.cause = books.cause or cause or ""
        if self.loop._desk.state.phase is not Phase.CLOSED:  # it is being stored, or has been
            books.skips = books.skips or skips
        if idle is not None:
            if books.idle is None:
                books.idle, books.busy_until = idle, max(books.busy_until, self.clock())
        elif not self.exits:
            books.committed = True
            books.cancelling = books.cancelling or stop is not None
        self.loop.stop(stop, when_idle_for=idle, cause=cause, skip_checkpoint=skips)

    def open(self) -> None:
        """Open the oldest gate."""
        if self.gates:
            self.gates.pop(0).open()

    def tear(self) -> None:
        """Cancel the task of the loop, if it runs."""
        if self.task is not None and self.books.has_run and not self.exits:
            self.books.torn = True
            self.task.cancel()

    # What callbacks do.

    def gen_input(self, about: Planning[int], items: Sequence[int]) -> Turn[int] | Awaitable[Turn[int]]:
        """Plan a turn over some of the items, in one way or another."""
        turn = self._begin(about, items, ())
        return self._in_its_way(turn.script.planning, turn, self._plan)

    def gen_resume(
        self, about: Planning[int], interrupted: Sequence[int], unhandled: Sequence[int], new: Sequence[int]
    ) -> Turn[int] | Awaitable[Turn[int]]:
        """Plan how the turn in flight goes on."""
        assert not self.books.turns, "gen_resume is called at most once, and first"
        assert list(interrupted) == self.books.flight
        assert [*interrupted, *unhandled] == [*self.books.flight, *self.books.buffer[: len(unhandled)]]
        turn = self._begin(about, [*unhandled, *new], interrupted)
        return self._in_its_way(turn.script.planning, turn, self._plan)

    def prepare_agent(self, about: Planning[int], consumed: Sequence[int]) -> Agent | Awaitable[Agent]:
        """Give the agent."""
        turn = self.books.turns[-1]
        assert about.turn == turn.number
        assert turn.plan is not None
        assert list(consumed) == list(turn.plan.consumed)
        assert not (self.books.exact and turn.doomed), "a turn is prepared in spite of a stop"
        return self._in_its_way(turn.script.preparing, turn, lambda _: self.agent)

    async def on_events(self, turn: TurnView[int], events: AsyncGenerator[Event]) -> None:
        """Watch a turn, and do something of its own."""
        booked = self.books.turns[-1]
        how = booked.script.watching
        async for _ in events:
            match how:
                case "early":
                    return
                case "fails":
                    self._fail(booked)
                case "pushes" if not self.finishing:
                    self.push(Push())
                case "stops":
                    self.stop(None, idle=None, cause=None, skips=False)
                case _:
                    continue
            how = "all"
        if how == "fails late":
            self._fail(booked)
        if how == "tidies":
            await anyio.sleep(0.25)
        if how == "cancelled" and turn.run is not None:
            outcome = await turn.run.outcome()
            if outcome.cancelled is not None:
                msg = "as run.answer() says it"
                raise Cancelled(msg, outcome.cancelled)

    def _fail(self, turn: Booked) -> None:
        turn.error = Failure(f"turn {turn.number}")
        self.books.reasons.append(turn.error)
        raise turn.error

    def observe(self, run_id: str, item: Item) -> None:
        """Book the ends of turns."""
        if not isinstance(item, TurnEnded):
            return
        turn = self.books.turns[-1] if self.books.turns else None
        try:
            assert run_id == "loop"
            assert turn is not None, f"turn {item.turn} has ended without its plan"
            assert turn.number == item.turn
            turn.outcome = _outcome(turn.view) if item.end != "abandoned" else None
            self.books.end(turn, item.end, self.clock())
        except AssertionError as error:
            self.wrong.append(error)

    def _begin(self, about: Planning[int], items: Sequence[int], interrupted: Sequence[int]) -> Booked:
        turn = Booked(about.turn, list(items), list(interrupted), next(self.scripts), view=self.loop.turn)
        if self.books.exact:
            assert tuple(about.preempted) == tuple(self.books.preempted)
        assert set(about.preempting) <= set(items)
        self.books.plan(turn)
        return turn

    def _in_its_way(self, how: How, turn: Booked, give: "Callable[[Booked], T]") -> "T | Awaitable[T]":
        match how:
            case "plain":
                return self._given(turn, give)
            case "fails":
                error = Failure("a callback")
                self.books.reasons.append(error)
                raise error
            case "odd":
                self.books.reasons.append(UserError)
                return give(Booked(0, turn.items[:-1], turn.interrupted[:-1], Script()))
            case _:
                return self._later(how, turn, give)

    async def _later(self, how: How, turn: Booked, give: "Callable[[Booked], T]") -> T:
        if how == "held":
            await self.gate()
        else:
            await next_round()
        return self._given(turn, give)

    def _given(self, turn: Booked, give: "Callable[[Booked], T]") -> T:
        turn.doomed = turn.doomed or self.books.committed
        return give(turn)

    def _plan(self, turn: Booked) -> Turn[int]:
        script, items = turn.script, turn.items
        takes = min(len(items), script.takes)
        first = len(items) - takes if script.from_end else 0
        taken, rest = items[first : first + takes], items[:first] + items[first + takes :]
        drops = script.drops
        turn.plan = Turn(
            f"do {taken}",
            consumed=[*turn.interrupted, *taken],
            remaining=rest[drops:],
            dropped=rest[:drops],
            answers={one.id: "yes" for one in self.flight.asked}
            if self.flight and not turn.number > 1
            else {},
        )
        return turn.plan

    # What agents do.

    def _agent(self) -> Agent:
        @tool
        async def work() -> str:
            """Work a while."""
            await self.gate()
            return "worked"

        @tool
        async def ask(ctx: ToolContext) -> str:
            """Ask a human."""
            return str(await ctx.interrupt("may I?"))

        return Agent(self._model, tools=[work, ask], tool_grace=0.5, retries=0, name="worker")

    async def _model(self, request: ModelRequest) -> AsyncGenerator[Chunk]:
        agency = self.books.turns[-1].script.agent
        if request.messages[-1].role == "tool":
            yield "Done."
            return
        match agency:
            case "held":
                yield "Well, "
                await self.gate()
            case "works":
                yield Call("work")
                return
            case "asks":
                yield Call("ask")
                return
            case "fails":
                await next_round()
                msg = "the line is dead"
                raise ModelError(msg)
            case "clings":
                yield "I hold "
                await self._cling()
            case "quick":
                pass
        yield "done."

    async def _cling(self) -> None:
        release = asyncio.Event()
        asyncio.get_running_loop().call_later(HOLD, release.set)
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    async def gate(self) -> None:
        """Wait until somebody opens."""
        if not self.finishing:
            gate = Gate()
            self.gates.append(gate)
            await gate

    # The life itself.

    async def live(self, drive: "Callable[[Life], Awaitable[None]]") -> Exit[int]:
        """Run the loop while somebody drives it, stop it, and check everything."""
        for action in self.scene.actions[: self.scene.early]:
            self.do(action)
        async with asyncio.TaskGroup() as group:
            self.task = group.create_task(self._run(), name="the loop")
            await drive(self)
            self.finishing = True
            while self.gates:
                self.open()
            if not self.exits:
                self.stop(None, idle=None, cause=None, skips=False)
            await self.loop.wait()
        await self._check()
        return self.exits[0]

    async def _run(self) -> None:
        self.books.has_run = True
        self.books.busy_until = self.clock()
        try:
            self.exits.append(await self.loop.run())
        except asyncio.CancelledError:
            assert self.books.torn, "the loop was cancelled by nobody"
            self.exits.append(await self.loop.wait())
        self.ended_at = self.clock()
        if not self.books.committed and not self.books.torn and self.exits[0].reason is None:
            self._check_idle()

    def _check_idle(self) -> None:
        books = self.books
        assert books.idle is not None, "the loop has ended, and nobody has asked it to"
        if books.exact:
            was = self.ended_at - books.busy_until
            assert abs(was - books.idle) < SLACK, f"idle for {was} s, not for {books.idle} s"

    async def _check(self) -> None:
        if self.wrong:
            raise self.wrong[0]
        books, exit_ = self.books, self.exits[0]
        assert await self.loop.wait() is exit_, "one exit"
        with pytest.raises(RunStateError):
            await self.loop.run()
        for push in books.pushed:
            if push.receipt.preempt is not None:
                await push.receipt.preempt
            books.check_answer(push)
        for turn in books.turns:
            end = None if turn.outcome is None else books.expected(turn, turn.outcome)
            assert end is None or turn.end == end, f"turn {turn.number} is {turn.end}, and should be {end}"
            books.check_preempted(turn)
        if books.torn and not books.turns and not {*books.restored} & {*exit_.unhandled, *exit_.interrupted}:
            books.unload()  # cancelled while it was read
        unsure = books.torn or not books.exact  # which of the two came first
        if unsure and books.turns and books.turns[-1].end == "broken":
            books.flight, books.kept = list(exit_.interrupted), bool(exit_.interrupted)
        self._check_items(exit_)
        self._check_reason(exit_)
        self._check_store(exit_)
        await anyio.sleep(HOLD + 1)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"left behind: {left}"

    def _check_items(self, exit_: Exit[int]) -> None:
        books, late = self.books, exit_.late()
        refused = [one.item for one in books.pushed if not one.receipt.accepted]
        if books.exact:
            assert list(late) == refused, f"late are {late}, and should be {refused}"
            assert list(exit_.unhandled) == books.buffer, f"{exit_.unhandled} wait, not {books.buffer}"
            assert list(exit_.interrupted) == books.flight, f"{exit_.interrupted}, not {books.flight}"
        pushed = [one.item for one in books.pushed]
        same(
            [*books.restored, *pushed],
            books.done,
            exit_.failed,
            exit_.unhandled,
            exit_.interrupted,
            late,
        )
        assert exit_.late() == late
        with pytest.raises(LoopClosedError):
            self.loop.push(-1)

    def _check_reason(self, exit_: Exit[int]) -> None:
        books, reason = self.books, exit_.reason
        if books.exact:  # else nobody knows which thread was first
            assert exit_.stop_cause == books.cause
        if books.torn:
            assert not isinstance(reason, Cancelled) or self.books.cancelling, reason
            return
        if books.reasons:
            expected = books.reasons[0]
            assert reason is expected or (isinstance(expected, type) and isinstance(reason, expected)), reason
            return
        end = books.turns[-1].end if books.turns else ""
        match end:
            case "stopped":
                assert isinstance(reason, Cancelled), reason
            case "interrupted":
                assert isinstance(reason, Interrupted), reason
            case "failed" if not self.scene.watches:
                assert isinstance(reason, ModelError), reason
            case _:
                assert reason is None, reason

    def _check_store(self, exit_: Exit[int]) -> None:
        books, data = self.books, self.store.data.get(ID)
        if not self.scene.keeps:
            assert not exit_.checkpoint_attempted
            return
        assert exit_.checkpoint_error is None, exit_.checkpoint_error
        parks = exit_.reason is None or isinstance(exit_.reason, Cancelled | Interrupted)
        parks = parks or (books.kept and bool(books.turns) and books.turns[-1].outcome is not None)
        if parks and books.skips and not books.exact:  # it was asked while it was stored, or before
            return
        if not parks or books.skips:
            assert not exit_.checkpoint_attempted
            if books.untouched:
                assert data == books.stored, "nobody may touch the checkpoint before it was consumed"
            elif exit_.failed and data == books.stored:
                return  # what a turn that failed had taken is not consumed: a later loop may try it again
            elif books.exact and books.stored and not books.torn:
                parked = unpark(data) if data else None
                are = items_of(parked.unhandled) if parked else []
                assert are == books.left, f"{are} are stored, and {books.left} were left"
            return
        left = bool(exit_.unhandled) or books.kept
        assert exit_.checkpoint_attempted == left
        assert (data is not None) == left, f"the store holds {data}"
        if data:
            parked = unpark(data)
            assert items_of(parked.unhandled) == list(exit_.unhandled)
            assert items_of(parked.interrupted) == list(exit_.interrupted)
            assert (parked.turn is not None) == books.kept


def _outcome(view: TurnView[int] | None) -> Outcome:
    """Give how the run of a turn has ended, which it has."""
    assert view is not None
    assert view.run is not None
    outcome = view.run.outcome()
    try:
        outcome.send(None)
    except StopIteration as ended:
        return ended.value
    outcome.close()
    msg = f"turn {view.number} is over, and its run is not"
    raise AssertionError(msg)


async def in_steps(life: Life) -> None:
    """Carry the actions out between the callbacks of the event loop, each so many steps after the last."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    due: list[tuple[int, Action]] = []

    def look(step: int) -> None:
        if due and step >= due[0][0]:
            try:
                life.do(due.pop()[1])
            except BaseException as error:  # noqa: BLE001 — told when the life is over
                life.wrong.append(error)

    loop.before_step = look
    for action in life.scene.actions[life.scene.early :]:
        due.append((loop.steps + action.after, action))
        while due:
            await next_round()
        if isinstance(action, Pass):
            await anyio.sleep(action.seconds)
    loop.before_step = None


def in_threads(crowd: Sequence[Sequence[Action]]) -> "Callable[[Life], Awaitable[None]]":
    """Carry the actions out in threads, each with its own."""

    def act(life: Life, actions: Sequence[Action]) -> None:
        for action in actions:
            life.do(action)

    async def drive(life: Life) -> None:
        async with anyio.create_task_group() as group:
            for actions in crowd:
                group.start_soon(anyio.to_thread.run_sync, partial(act, life, actions))

    return drive
