"""Plan: the model of a workflow: what comes next is decided from its history, by rule."""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence

from andon.core.draft import Chunk
from andon.core.messages import Call, Message, Result, ResultState
from andon.errors import ToolError, UserError
from andon.ports import ModelRequest

Next = Sequence[tuple[str, str]] | str  # steps, each with what it is asked; or the last word
Decide = Callable[[str, Sequence[Result]], Next]


class Plan:
    """Decides, from what the user asked and the results so far, which steps come next."""

    def __init__(self, name: str, decide: Decide) -> None:
        self.name = name
        self._decide = decide

    def next(self, messages: Sequence[Message], prefix: str) -> Message:
        """Give the calls of the next steps, or the last word."""
        start = max((place for place, message in enumerate(messages) if message.role == "user"), default=None)
        if start is None:
            msg = f"{self.name} is a workflow, and its history asks it nothing: give a prompt"
            raise UserError(msg)
        results = [result for message in messages[start:] for result in message.results]
        failure = self.failure(results)
        if failure is not None:
            raise failure
        comes = self._decide(messages[start].text, results)
        if isinstance(comes, str):
            return Message.assistant(comes)
        return Message.assistant(
            *(
                Call(step, {"request": request}, f"{prefix}_{len(results) + number}")
                for number, (step, request) in enumerate(comes)
            )
        )

    def failure(self, results: Iterable[Result]) -> ToolError | None:
        """Tell which step did not complete, if one did not: there is nothing to go on with."""
        for result in results:
            if result.state is not ResultState.COMPLETED:
                return ToolError(f"step {result.name} of {self.name} did not complete: {result.content}")
        return None

    def __call__(self, _request: ModelRequest, /) -> AsyncIterator[Chunk]:
        """Refuse: a plan is no model that could be asked elsewhere."""
        msg = f"{self.name} is the plan of a workflow: run the workflow"
        raise UserError(msg)
