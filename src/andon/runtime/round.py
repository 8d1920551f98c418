"""Round: the tool calls of one answer, each of which ends in exactly one result."""

from collections.abc import Coroutine, Sequence
from typing import Any

import anyio

from andon.core.items import ToolEnded, ToolStarted
from andon.core.messages import Call, Result, ResultState
from andon.core.repair import UNKNOWN
from andon.core.stop import Cause, Where
from andon.core.text import clean
from andon.core.tree import before_tool_site
from andon.errors import ToolError
from andon.runtime.isolate import Cut, Job
from andon.runtime.nested import Place, Suspended
from andon.runtime.record import SYNC_GRACE, Record
from andon.runtime.running import UNBEGUN, WAITS_UNKNOWN, Ended, Running

TAKEN = "The conversation was handed over to another agent already"
WAITS = "Paused: it waits for an answer, and goes on once there is one"


class Round:
    """Runs the calls of one answer: beside each other, or in turn where one of them is sequential."""

    __slots__ = ("_hit", "_places", "_record", "_writing", "left_at", "was_cut")

    def __init__(self, record: Record) -> None:
        self._record = record
        self.was_cut = False
        self.left_at: Where | None = None
        self._hit: Where | None = None
        self._writing: list[Job] = []
        bound = record.config.tool_concurrency
        self._places = anyio.CapacityLimiter(bound) if bound is not None else None

    @property
    def cut_at(self) -> Where:
        """Say where the cut has hit: for steps, which are part of this run, that is inside them."""
        return self._hit or (Where.TOOLS if self._record.config.plan is None else Where.POINT_STEP)

    async def run(self, calls: Sequence[Call]) -> None:
        """Run them all; returns when each has ended."""
        self._record.scope.cutting(self._cut)
        try:
            if len(calls) == 1 or any(self._is_sequential(call) for call in calls):
                await self._in_turn(calls)
            else:
                await self._together(calls)
        finally:
            self._record.scope.cutting(None)

    async def _in_turn(self, calls: Sequence[Call]) -> None:
        for call in sorted(calls, key=self._is_final):  # whoever takes over sees what the others gave
            await self._one(call)
            if self.left_at is not None:  # those after it begin when it has gone on
                return

    async def _together(self, calls: Sequence[Call]) -> None:
        conductors = [Job().start(self._in_place(call)) for call in calls]
        for conductor in conductors:
            await conductor.wait(self._record.tear)
        for conductor in conductors:
            if isinstance(conductor.error, Cut):  # the loop is shut down, and its call has no result yet
                self.was_cut = True
            elif conductor.error is not None:
                raise conductor.error

    async def _in_place(self, call: Call) -> None:
        if self._places is None:
            await self._one(call)
            return
        async with self._places:
            await self._one(call)

    async def _one(self, call: Call) -> None:
        hooks = self._record.config.hooks
        ended = UNBEGUN
        if self._record.scope.cuts:
            self._end(call, ended)
            return
        try:
            ended = await self._through_hooks(call) if "before_tool" in hooks.named else await self._use(call)
            ended = self._end(call, ended)
        finally:
            if "after_tool" in hooks.named:
                result = Result(call.id, call.name, ended.content, ended.state)
                await self._record.hook("after_tool", call=call, result=result, cut=self._record.scope.cuts)

    async def _through_hooks(self, call: Call) -> Ended:
        site = before_tool_site(call.id)
        try:
            if self._record.state.asked:
                Place(self._record, site=site).ask_again()
            refusal = await self._record.hook("before_tool", site, call=call)
        except Suspended as left:
            self._leave(left.where)
            if self._record.state.begun(call.id):
                return self._still_open(call, WAITS_UNKNOWN)
            return Ended(ResultState.NOT_STARTED, WAITS, again=True)
        return await self._use(call) if refusal is None else Ended(ResultState.FAILED, clean(refusal))

    async def _use(self, call: Call) -> Ended:
        record = self._record
        tool = record.config.tools.get(call.name) if call.said is None else None
        if tool is None:
            return self._unheard_of(call)
        if record.scope.cuts:  # asked for while a hook ran
            return UNBEGUN
        if tool.final and any(map(self._took_over, record.state.results.values())):
            return Ended(ResultState.FAILED, TAKEN)
        running = Running(call, tool, record)
        try:
            work = running.prepare()
        except ToolError as error:
            return Ended(ResultState.FAILED, clean(str(error)))
        except Suspended as left:
            self._leave(left.where)
            return Ended(ResultState.UNKNOWN, WAITS_UNKNOWN, again=True, children=running.kept())
        self._begin(call)
        if record.top.journal is not None and not await self._is_written(call, work):
            return UNBEGUN
        record.running.append(running)
        try:
            await running.start(work).wait(record.tear)
            await running.quiet()
        finally:
            record.running.remove(running)
        ended = running.ended()
        if running.left_at is not None:
            self._leave(running.left_at)
        if record.scope.cuts and self._hit is not Where.TOOLS:
            self._hit = running.hit() or self._hit
        return ended

    def _begin(self, call: Call) -> None:
        record = self._record
        record.add(
            ToolStarted(
                n=record.items + 1,
                at=record.scope.now(),
                call_id=call.id,
                name=call.name,
                step=record.config.plan is not None,
                again=record.state.begun(call.id),
            )
        )

    async def _is_written(self, call: Call, work: Coroutine[Any, Any, object]) -> bool:
        """Let the intent be durable before the tool runs; False if a cut came meanwhile."""
        record = self._record
        job = Job().start(record.sync())
        self._writing.append(job)
        await job.wait(record.tear)
        self._writing.remove(job)
        if job.error is None and not record.scope.cuts:
            return True
        work.close()
        if job.error is not None and not record.scope.cuts:
            self._end(call, UNBEGUN)
            raise job.error
        return False

    def _unheard_of(self, call: Call) -> Ended:
        said = call.name if call.said is None else call.said
        known = ", ".join(self._record.config.tools) or "none"
        return Ended(ResultState.FAILED, f"There is no tool {said!r:.200}. The tools are: {known}.")

    def _leave(self, where: Where) -> None:
        """Note that a call goes on after a resume; where its agent stopped, rather than that one waits."""
        if self.left_at is None or self.left_at is Where.PAUSED:
            self.left_at = where

    def _still_open(self, call: Call, content: str) -> Ended:
        """End a call that had begun before the run was resumed, and has not come to go on since."""
        children = self._record.state.again.get(call.id, ())
        return Ended(ResultState.UNKNOWN, content, again=True, children=children)

    def _end(self, call: Call, ended: Ended) -> Ended:
        record = self._record
        if ended is UNBEGUN:  # a cut that came between two calls
            self.was_cut = True
            ended = self._still_open(call, UNKNOWN) if record.state.begun(call.id) else UNBEGUN
        # A failure is for the model to read, but a workflow ends there, and tries again when it is resumed.
        retried = ended.state is ResultState.FAILED and record.config.plan is not None
        record.add(
            ToolEnded(
                n=record.items + 1,
                at=record.scope.now(),
                call_id=call.id,
                name=call.name,
                state=ended.state,
                content=ended.content,
                again=ended.again or retried,
                children=ended.children,
                repeats=record.state.repeats(call, ended.state),
            )
        )
        return ended

    def _cut(self) -> None:
        if not self._record.scope.cuts:  # a stop that may cut the model call only
            return
        self.was_cut = True
        stop = self._record.scope.stop
        cause = stop.causes[0] if stop is not None and stop.causes else Cause()
        for job in self._writing:
            job.end_within(SYNC_GRACE, cancel=True)
        for running in tuple(self._record.running):
            running.cut(cause)

    def _is_sequential(self, call: Call) -> bool:
        tool = self._record.config.tools.get(call.name)
        return tool is not None and tool.sequential

    def _is_final(self, call: Call) -> bool:
        tool = self._record.config.tools.get(call.name)
        return tool is not None and tool.final

    def _took_over(self, result: Result) -> bool:
        return self._record.config.takes_over(result)
