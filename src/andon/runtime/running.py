"""Running: one tool call under way, from its checked arguments to how it ended."""

import importlib
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, assert_never

from msgspec import Struct

from andon.core.checkpoint import Checkpoint
from andon.core.messages import Call, ResultState
from andon.core.repair import NOT_STARTED, UNKNOWN
from andon.core.stop import Abandoned, Cause, Where
from andon.core.text import clean, in_words
from andon.core.tree import tool_site
from andon.errors import ToolError
from andon.runtime.isolate import Cut, Job, in_thread, on_loop
from andon.runtime.nested import HERE, Place, Suspended, suspension
from andon.runtime.record import MARGIN, Late, Record
from andon.runtime.tools import Signal, Tool, ToolContext, drain, follow

WAITS_UNKNOWN = "Paused: it waits for an answer; whether it took effect so far is not known"


class Ended(Struct, frozen=True):
    """How a call ended; with `again`, a resumed run makes it again, with its children going on."""

    state: ResultState
    content: str
    again: bool = False
    children: tuple[Checkpoint, ...] = ()


UNBEGUN = Ended(ResultState.NOT_STARTED, NOT_STARTED)


class Running:
    """One tool call under way."""

    __slots__ = (
        "_blocks",
        "_call",
        "_job",
        "_open",
        "_place",
        "_record",
        "_signal",
        "_timed_out",
        "_tool",
        "left_at",
    )

    def __init__(self, call: Call, tool: Tool[..., Any], record: Record) -> None:
        self._call = call
        self._tool = tool
        self._record = record
        self._signal = Signal()
        self._place = Place(record, tool.bond, call_id=call.id, site=tool_site(call.id))
        self._job = Job(self._late)
        self._blocks = False
        self._timed_out = False
        self._open = True
        self.left_at: Where | None = None

    def prepare(self) -> Coroutine[Any, Any, object]:
        """Check the arguments and make the work, without starting it."""
        function = self._tool.function
        arguments = self._tool.arguments.check(self._call.arguments)
        if self._record.state.asked:
            self._place.ask_again()
        asked_for = self._tool.arguments.context
        if asked_for is not None:
            emit, call_back = on_loop(self._progress), on_loop(self._signal.call_back)
            arguments[asked_for] = ToolContext(
                self._call, self._record.run_id, self._signal, emit, call_back, self._place
            )
        kind = self._tool.kind
        match kind:
            case "async":
                return function(**arguments)
            case "stream":
                return drain(function(**arguments), self._progress, self._signal)
            case "thread":
                return self._in_thread(partial(function, **arguments))
            case "process":
                call_in_process = importlib.import_module("andon.runtime.foreign").call_in_process
                return call_in_process(function, arguments, self._record.config.tool_grace)
            case _:
                assert_never(kind)

    def start(self, work: Coroutine[Any, Any, object]) -> Job:
        """Set it going."""
        if not (self._tool.idempotent or self._tool.agent):
            self._record.harm()
        token = HERE.set(self._place)  # the task takes it along
        self._job.start(work)
        HERE.reset(token)
        if self._tool.timeout is not None:
            self._job.after(self._tool.timeout, self._expire)
        return self._job

    def cut(self, cause: Cause) -> None:
        """Tell the tool to stop, unless it is one that must finish."""
        if self._tool.finish:
            self._job.after(self.patience(), self._job.abandon)
            return
        self._job.end_within(self.patience(), cancel=not self._blocks)
        self._signal.tell(cause)  # only now: what a callback does must not keep the tool from being cut

    def patience(self) -> float:
        """Give the seconds that it may take to end; the tools of a child inside are waited for as well."""
        config = self._record.config
        own = config.finish_timeout if self._tool.finish else config.tool_grace
        return max([own, *(run.patience() + MARGIN for run in self._place.live)])

    async def quiet(self) -> None:
        """Let the runs inside a call that was left early end, within their time: they are not heard later."""
        if not (self._job.cut or suspension(self._job.error)) or self._job.abandoned or not self._place.runs:
            return
        self._end_inside(Cause("parent", reason="the tool call that started it was left"))
        job = Job().start(self._place.heard())
        job.after(self.patience(), lambda: job.end_within(MARGIN, cancel=True))
        await job.wait(self._record.tear)
        for run in self._place.live:
            self._record.abandon(Abandoned(self._call.name, self._call.id, (run.id,)))

    def _end_inside(self, cause: Cause) -> None:
        """End the runs inside, unless the stop of this run has done so."""
        if not self._record.scope.cuts:
            for run in self._place.live:
                run.cancel(source=cause.source, reason=cause.reason)

    async def _in_thread(self, work: Callable[[], object]) -> object:
        self._blocks = True
        value = await in_thread(work)
        self._blocks = False
        return await follow(value, self._progress, self._signal)

    def _expire(self) -> None:
        self._timed_out = not self._job.cut
        cause = Cause("timeout", reason=f"its timeout of {self._tool.timeout:g} s has passed")
        self._job.end_within(self.patience(), cancel=not self._blocks)
        self._signal.tell(cause)
        self._end_inside(cause)

    def ended(self) -> Ended:
        """Tell how it ended; from here on nobody listens to it."""
        self._open = False
        self._place.leave()
        job = self._job
        if not job.began:
            return UNBEGUN
        if job.abandoned:
            self._record.abandon(Abandoned(self._call.name, self._call.id))
            return Ended(ResultState.UNKNOWN, self._unknown())
        if job.error is None:
            return self._completed(job.value)
        left = suspension(job.error)
        if left is not None or job.cut or (self._record.torn and isinstance(job.error, Cut)):
            return self._was_cut(left)
        if isinstance(job.error, ToolError):
            return self._failed(clean(str(job.error)))
        return self._failed(in_words(job.error))

    def hit(self) -> Where | None:
        """Say where the cut has hit a step, or an agent that took over: they are part of this run."""
        if self._place.bond != "step":
            return None
        if self._job.abandoned:
            return Where.TOOLS
        return self._place.runs[-1].left_at() if self._place.runs else None

    def kept(self) -> tuple[Checkpoint, ...]:
        """Give what the runs inside go on from."""
        return self._place.checkpoints()

    def _was_cut(self, left: Suspended | None) -> Ended:
        if left is not None and left.where is Where.PAUSED:
            self.left_at = left.where
            return Ended(ResultState.UNKNOWN, WAITS_UNKNOWN, again=True, children=self.kept())
        if left is not None or (self._place.keeps(agent=self._tool.agent) and not self._timed_out):
            self.left_at = None if left is None else left.where
            return Ended(ResultState.UNKNOWN, UNKNOWN, again=True, children=self.kept())
        # An agent of which nothing has begun that must not begin twice may simply be asked again.
        again = self._tool.agent and not self._place.harmful and not self._timed_out
        return Ended(ResultState.UNKNOWN, self._unknown(), again=again)

    def _failed(self, content: str) -> Ended:
        step = self._record.config.plan is not None
        return Ended(ResultState.FAILED, content, children=self.kept() if step else ())

    def _completed(self, value: object) -> Ended:
        try:
            return Ended(ResultState.COMPLETED, self._tool.text(value))
        except ToolError as error:
            return Ended(ResultState.FAILED, clean(str(error)))

    def _unknown(self) -> str:
        if self._timed_out:
            return f"Timed out after {self._tool.timeout:g} s; whether it took effect is not known"
        return UNKNOWN

    def _progress(self, value: object) -> None:
        if self._open:  # an abandoned tool may still talk, but nobody listens
            self._record.progress(self._call.id, value)

    def _late(self, job: Job) -> None:
        self._record.late.append(Late(self._call.id, self._call.name, job.value, job.error))
