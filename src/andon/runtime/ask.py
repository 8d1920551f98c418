"""Ask: one step of the model, with its retries; a cut gives the partial answer, it never raises."""

import sys
from collections.abc import AsyncIterator, Callable
from typing import Literal

from msgspec.structs import replace

from andon.core.draft import Chunk, Draft
from andon.core.items import ModelEnded, ModelStarted
from andon.core.limits import NOTHING, usage_at_cut
from andon.core.messages import Message
from andon.core.stop import Abandoned
from andon.core.text import in_words
from andon.core.tree import BEFORE_MODEL
from andon.errors import ModelError
from andon.ports import Model, ModelRequest
from andon.runtime.isolate import Cut, Job, Timer, clock, current_task, nap, turn
from andon.runtime.record import SYNC_GRACE, Record

BURST = 0.001  # seconds of chunks that never wait, after which the loop gets a turn
BACK_OFF = 0.5
BACK_OFF_MOST = 30.0

End = Literal["complete", "cut", "failed"]


class Fenced(BaseException):
    """The model would not let go in time; the run went on without this task."""


class Ask:
    """One step: the model is asked until it has answered, was cut, or has failed for good."""

    __slots__ = (
        "_attempts",
        "_cancelled",
        "_fenced",
        "_model",
        "_on_stuck",
        "_record",
        "_request",
        "_step",
        "_task",
        "_timer",
        "draft",
        "error",
    )

    def __init__(self, record: Record, on_stuck: Callable[["Ask", End], None]) -> None:
        config = record.config
        self._record = record
        self._on_stuck = on_stuck
        self._request = ModelRequest(
            tuple(record.state.messages), config.specs, config.instructions, config.settings
        )
        self._step = record.state.steps + 1
        self._attempts = 0
        self._model = ""
        self._task = current_task()
        self._timer: Timer | None = None
        self._cancelled = False
        self._fenced = False
        self.draft = Draft()
        self.error: BaseException | None = None

    async def run(self) -> End:
        """Ask each model in turn, each with its retries."""
        record = self._record
        if "before_model" in record.config.hooks.named:
            await record.hook("before_model", BEFORE_MODEL, request=self._request)
        for name, model in zip(record.config.names, record.config.models, strict=True):
            for retry in range(record.config.retries + 1):
                if retry:
                    await self._back_off(retry)
                if record.scope.cuts_model:
                    return "cut"
                end = await self._attempt(name, model)
                if end != "failed":
                    return end
                if not (isinstance(self.error, ModelError) and self.error.transient):
                    break
        return "failed"

    def message(self, end: End, note: str) -> Message:
        """Give the answer, or what there is of it; the note is for where no words had come."""
        if end == "complete":
            record = self._record
            return self.draft.complete(f"call_{record.run_id}_{self._step}", record.state.call_ids)
        return self.draft.cut(note)

    async def _attempt(self, name: str, model: Model) -> End:
        record = self._record
        self._attempts += 1
        self._model = name
        self.draft = Draft()
        self.error = None
        record.add(
            ModelStarted(
                n=record.items + 1,
                at=record.scope.now(),
                step=self._step,
                attempt=self._attempts,
                model=self._model,
            )
        )
        if record.top.journal is not None and not await self._is_written():
            return "cut"
        record.scope.cutting(self._cut)
        try:
            ended = await self._stream(model)
            # A model that swallows its cancellation and returns has not given its whole answer.
            end: End = "complete" if ended and not self._cancelled else "cut"
        except Cut:
            end = self._was_cancelled()
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001 — the model boundary: the run tells what failed
            self.error = error
            # What it raises while it is being cut is part of the cut.
            end = "cut" if record.scope.cuts_model else "failed"
        self._leave()
        self._conclude(end)
        return end

    async def _is_written(self) -> bool:
        """Let the journal have it before the model is asked; False if a cut came meanwhile."""
        record = self._record
        job = Job().start(record.sync())
        record.scope.cutting(lambda: job.end_within(SYNC_GRACE, cancel=True))
        await job.wait(record.tear)
        record.scope.cutting(None)
        if record.scope.cuts_model:
            self._conclude("cut", asked=False)
            return False
        if job.error is not None:
            self.error = job.error
            self._conclude("failed", asked=False)
            raise job.error
        return True

    async def _stream(self, model: Model) -> bool:
        chunks = model(self._request)
        if not hasattr(chunks, "__anext__"):
            msg = f"model {self._model!r} gave a {type(chunks).__name__}: write `async def` with `yield`"
            raise ModelError(msg)
        ended = False
        try:
            ended = await self._take_all(chunks)
        finally:
            if not ended:
                await self._close(chunks)
        return ended

    async def _take_all(self, chunks: AsyncIterator[Chunk]) -> bool:
        """Take chunks until they end, or until the run is cut (False); this is the hot path."""
        record = self._record
        scope, bell = record.scope, record.bell
        words, take = self.draft.words, self.draft.take
        show = record.events.append if record.place is None else record.show
        now = clock()
        turn_at = now() + BURST
        async for chunk in chunks:
            if self._fenced:  # nobody reads it any more
                return False
            delta = words(chunk) if type(chunk) is str and chunk else take(chunk)
            if delta is not None:
                show(delta)
                if bell.waiters:
                    bell.ring()
            if scope.cuts_model:
                return False
            if now() > turn_at:
                await turn()
                turn_at = now() + BURST
        return True

    async def _close(self, chunks: AsyncIterator[Chunk]) -> None:
        """Close what was left early: it is not cancelled while it cleans up, but its time is bounded."""
        if not self._fenced:  # else the run is with another model call, and what cuts is that one's
            error = sys.exception()
            if error is not None and not isinstance(error, Cut):
                self.error = error  # known already now, for the closing may never end
            self._record.scope.cutting(None)
            self._watch()
        close = getattr(chunks, "aclose", None)
        if close is not None:
            await close()

    def _cut(self) -> None:
        """Cancel the pull, once; called by the loop, so this task is waiting at some await in `_stream`."""
        if self._cancelled:
            return
        self._cancelled = True
        self._task.cancel()
        self._watch()

    def _watch(self) -> None:
        if self._timer is None:
            self._timer = Timer(self._record.patience(), self._stuck)

    def _stuck(self) -> None:
        self._fenced = True
        self._record.scope.cutting(None)
        self._record.abandon(Abandoned("model"))
        end: End = "cut" if self._record.scope.cuts_model else "failed"
        if end == "failed" and self.error is None:
            self.error = ModelError("the model failed, and would not be closed in time")
        try:
            self._conclude(end)
        finally:
            self._on_stuck(self, end)

    def _leave(self) -> None:
        if self._fenced:
            raise Fenced
        self._record.scope.cutting(None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._cancelled and self._task.uncancel():  # the task was cancelled from outside as well
            self._record.tear()

    def _was_cancelled(self) -> End:
        if self._cancelled or self._fenced:
            return "cut"
        if self._task.cancelling():
            self._record.scope.cutting(None)
            self._record.tear()
            return "cut"
        self.error = ModelError("the model call cancelled itself, without a stop")
        return "failed"

    def _conclude(self, end: End, *, asked: bool = True) -> None:
        record = self._record
        usage = self.draft.usage or NOTHING
        if asked and end != "complete":
            usage = usage_at_cut(self.draft.usage, record.state.characters(), self.draft.received)
        price = record.config.pricing.get(self._model)
        cost = None if price is None or usage is NOTHING else price(usage)
        if cost is not None:
            usage = replace(usage, cost=cost)
        record.add(
            ModelEnded(
                n=record.items + 1,
                at=record.scope.now(),
                step=self._step,
                attempt=self._attempts,
                end=end,
                usage=usage,
                error=None if self.error is None else in_words(self.error),
            )
        )

    async def _back_off(self, retry: int) -> None:
        told = self.error.retry_after if isinstance(self.error, ModelError) else None
        job = Job().start(nap(told if told is not None else min(BACK_OFF * 2 ** (retry - 1), BACK_OFF_MOST)))
        self._record.scope.cutting(lambda: job.end_within(1.0, cancel=True))
        try:
            await job.wait(self._record.tear)
        finally:
            self._record.scope.cutting(None)
