"""Carrier: carries one run from item to item until something ends it."""

from collections.abc import Awaitable, Callable
from functools import partial

from andon.core.fold import Next
from andon.core.items import Steered
from andon.core.limits import Limits
from andon.core.messages import Message
from andon.core.repair import answer
from andon.core.steer import Delivery
from andon.core.stop import Cause, Stop, Where
from andon.errors import HookError, RunStateError
from andon.runtime.ask import Ask, End, Fenced
from andon.runtime.budget import UNBOUNDED, Budget, affords, spent
from andon.runtime.ending import FAILED, Ending
from andon.runtime.hooks import MomentName
from andon.runtime.isolate import Job
from andon.runtime.nested import HERE, Place, Suspended
from andon.runtime.plan import Plan
from andon.runtime.record import Record, logger
from andon.runtime.round import Round
from andon.runtime.scope import LOST

STEERED = "(stopped to hear what you say)"


class Carrier:
    """The loop of one run; everything it decides, it reads from the record's state."""

    __slots__ = ("_budget", "_ending", "_plan", "_record")

    def __init__(self, record: Record, limits: Limits, ending: Ending) -> None:
        self._record = record
        self._ending = ending
        self._plan = record.config.plan
        self._budget: Budget | None = None
        if limits is not UNBOUNDED:
            self._budget = Budget(record, limits)
            record.budgets = (self._budget, *record.budgets)

    def begin(self, prompt: Message | None, *, armed: bool) -> None:
        """Set the run going; whatever comes, the prompt is in its history."""
        if prompt is not None:
            self._record.add_message(prompt)
        job = Job().start(self._work(partial(self._story, prompt, armed=armed)))
        job.if_never_begun(partial(self._torn_away, Where.BEFORE_START))

    async def _work(self, story: Callable[[], Awaitable[None]]) -> None:
        HERE.set(Place(self._record))
        try:
            await story()
        except Fenced:
            return
        except (KeyboardInterrupt, GeneratorExit) as error:
            self._ending.failure = RunStateError(LOST) if isinstance(error, GeneratorExit) else error
            self._ending.bury()
            raise
        except BaseException as error:  # noqa: BLE001 — the run's edge: hooks and bugs end it as an error
            self._ending.failure = error
        try:
            await self._end()
        except BaseException as error:
            logger.exception("run %s could not end: a bug of Andon, please report it", self._record.run_id)
            self._ending.failure = error
            self._ending.finish(self._ending.report())  # whoever waits for the end must get one
            raise

    async def _story(self, prompt: Message | None, *, armed: bool) -> None:
        record = self._record
        if "run_started" in record.config.hooks.named:
            await record.hook("run_started")
        if prompt is not None:
            await record.tell_of_message(prompt)
        if armed or record.scope.due(Where.BEFORE_START):
            self._ending.halt(Where.BEFORE_START)
        else:
            await self._go_on()

    async def _go_on(self) -> None:
        record = self._record
        state = record.state
        here = self._where()
        while not self._ending.near:
            match state.next:
                case Next.ASK:
                    if self._plan is not None:  # a stop takes effect before a step, not after the last one
                        await self._plan_on(self._plan)
                    elif not self._halts(here):
                        await self._ask()
                    here = self._after_model if state.calls else Where.MODEL
                case Next.USE:
                    if not self._halts(here):
                        await self._use()
                case Next.COLLECT:
                    here = self._after_tools
                    await self._collect(here)
                case _:  # FINISH, or ENDED
                    if not await self._goes_on():
                        return
                    here = Where.MODEL

    @property
    def _after_model(self) -> Where:
        return Where.POINT_MODEL if self._plan is None else Where.POINT_STEP

    @property
    def _after_tools(self) -> Where:
        return Where.POINT_TOOLS if self._plan is None else Where.POINT_STEP

    async def _collect(self, here: Where) -> None:
        record, state = self._record, self._record.state
        message, heard = answer(state.calls, state.results), state.heard
        for one in (message, *heard):
            record.add_message(one)
        last = self._handed_over(message) if record.config.hands_over else None
        if last is None:
            if self._plan is None:
                self._halts(here)  # before the hooks: what they take is no part of the stop
        else:
            record.add_message(last)
        for one in (message, *heard) if last is None else (message, *heard, last):
            await record.tell_of_message(one)

    def _handed_over(self, message: Message) -> Message | None:
        """Give the answer of an agent that was handed the conversation: it is the run's."""
        answers = [result.content for result in message.results if self._record.config.takes_over(result)]
        return Message.assistant(answers[-1]) if answers else None

    async def _plan_on(self, plan: Plan) -> None:
        message = plan.next(self._record.state.messages, f"step_{self._record.run_id}")
        self._record.add_message(message)
        await self._record.tell_of_message(message)

    def _halts(self, here: Where) -> bool:
        """Look, at a whole point, whether a stop or a limit takes effect."""
        if self._stops(here):
            return True
        if not self._record.budgets:
            return False
        record, calls = self._record, self._record.state.new_calls
        # What costs nothing: the steps of a plan, which look for themselves, and calls that only go on.
        if self._plan is not None or calls == 0 or not spent(record, calls):
            return False
        record.scope.drain()
        self._halt_at_limit(here)
        return True

    def _halt_at_limit(self, here: Where) -> None:
        """Halt where only a limit forbids to go on: the own one, or that of a run above."""
        scope = self._record.scope
        if scope.stop is None:
            scope.request(Stop.graceful(), Cause("parent", reason="a limit of the run above was reached"))
            scope.drain()
        self._ending.halt(here, self._reached)

    @property
    def _reached(self) -> str | None:
        return None if self._budget is None else self._budget.reached

    def _stops(self, here: Where) -> bool:
        """Look whether a stop takes effect; of one that only a limit asked for, the limit is the reason."""
        scope = self._record.scope
        if not scope.due(here) or scope.stop is None:
            return False
        limit = self._reached
        if limit is not None and any(cause.source != "limit" for cause in scope.stop.causes):
            limit = None
        self._ending.halt(here, limit)
        return True

    async def _goes_on(self) -> bool:
        """Say whether the run, which has its answer, is to hear more; a stop that is pending comes first."""
        record = self._record
        if not record.spoken_to:
            return False
        record.scope.drain()
        if record.scope.stop is not None or not affords(record, None):
            return False
        return await self._hear(at_end=True)

    async def _hear(self, *, at_end: bool = False) -> bool:
        """Put into the history what was said to the run from outside."""
        record = self._record
        heard: list[Message] = []
        for above, speaker in enumerate((record, *record.above)):  # they live on one loop
            speaker.scope.heard()
            for steer, receipt in speaker.steering.take(at_end=at_end):
                n, at = record.items + 1, record.scope.now()
                record.add(Steered(n=n, at=at, message=steer.message, id=steer.id, above=above))
                receipt.settle(Delivery(delivered=True, at=at, n=speaker.items))
                heard.append(steer.message)
        for message in heard:
            await record.tell_of_message(message)
        return bool(heard)

    async def _ask(self) -> None:
        if self._record.spoken_to:
            await self._hear()
        ask = Ask(self._record, self._take_over)
        try:
            end = await ask.run()
        except Exception:  # of a hook, or of the journal
            await self._hook_after_model(None, cut=True)
            raise
        except Suspended as left:
            self._leave(left.where)
            await self._hook_after_model(None, cut=True)
            return
        await self._after_ask(ask, end)

    async def _after_ask(self, ask: Ask, end: End) -> None:
        record = self._record
        goes_on = end == "cut" and not self._stops(Where.MODEL)  # cut only to hear something new
        if end == "failed":
            self._ending.failure = ask.error
        message = self._answer(ask, end, goes_on=goes_on)
        if message is not None:
            record.add_message(message)
            if message.calls:
                self._halts(Where.POINT_MODEL)  # before the hooks: what they take is no part of the stop
        try:
            if message is not None:
                await record.tell_of_message(message)
        finally:
            await self._hook_after_model(message, cut=end == "cut")
        if goes_on:
            await self._hear()

    def _answer(self, ask: Ask, end: End, *, goes_on: bool) -> Message | None:
        if not goes_on:
            return ask.message(end, self._record.config.cancel_text if end == "cut" else FAILED)
        return ask.message(end, STEERED) if ask.draft.received.parts else None

    async def _hook_after_model(self, message: Message | None, *, cut: bool) -> None:
        if "after_model" in self._record.config.hooks.named:
            await self._record.hook("after_model", message=message, cut=cut)

    def _take_over(self, ask: Ask, end: End) -> None:
        """Go on without a model that would not let go; the task that waits for it is fenced."""
        job = Job().start(self._work(partial(self._go_on_without, ask, end)))
        job.if_never_begun(partial(self._torn_away, Where.MODEL))

    async def _go_on_without(self, ask: Ask, end: End) -> None:
        await self._after_ask(ask, end)
        await self._go_on()

    async def _use(self) -> None:
        round_ = Round(self._record)
        await round_.run(self._record.state.pending)
        if round_.was_cut:  # the results are put in the history at the end, after the checkpoint was taken
            self._ending.halt(round_.cut_at)
        elif round_.left_at is not None:
            self._leave(round_.left_at)
        elif self._plan is not None:
            self._ending.failure = self._plan.failure(self._record.state.results.values())

    def _leave(self, where: Where) -> None:
        """End where a call goes on after a resume: its agent was stopped inside, or it waits for a human."""
        if where in {Where.MODEL, Where.TOOLS}:
            self._record.scope.grace_is_over()
        if self._stops(where):
            return
        if where is Where.PAUSED:
            self._ending.paused = True
        else:  # a child was stopped where this run could not be
            self._halt_at_limit(where)

    async def _end(self) -> None:
        ending = self._ending
        hooks = self._record.config.hooks
        sealed = ending.close()
        for message in sealed if "message_added" in hooks.named else ():
            await self._hook_at_end("message_added", message=message)
        if "run_ended" in hooks.named:
            outcome = ending.outcome(ending.report())
            await self._hook_at_end("run_ended", outcome=outcome, cut=ending.stopped_at is not None)
        ending.finish(await ending.written(await ending.stored()))

    async def _hook_at_end(self, name: MomentName, **what: object) -> None:
        try:
            await self._record.hook(name, "", **what)
        except HookError as error:
            self._ending.failure = error

    def _torn_away(self, where: Where) -> None:
        """End a run whose task the loop cancelled before its first step."""
        self._record.tear()
        self._record.scope.drain()
        self._ending.halt(where)
        self._ending.bury()

    def _where(self) -> Where:
        """Say at which point a run is that has not begun, or goes on."""
        state = self._record.state
        if state.calls and not state.results and not any(state.begun(call.id) for call in state.calls):
            return self._after_model
        last = state.messages[-1] if state.messages else None
        if last is not None and last.role == "tool":
            return self._after_tools
        return Where.BEFORE_START
