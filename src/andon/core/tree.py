"""Tree: what a checkpoint holds of the runs inside a run: their questions, and the way to them."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from andon.core.checkpoint import Asked, Checkpoint
from andon.core.messages import Message
from andon.core.outcome import Interrupt
from andon.errors import CheckpointError

BEFORE_MODEL = "before_model"
GO_ON = Message.user("Go on.")


def tool_site(call_id: str) -> str:
    """Name the place inside a tool call."""
    return f"tool:{call_id}"


def before_tool_site(call_id: str) -> str:
    """Name the place in the hooks before a tool call."""
    return f"before_tool:{call_id}"


def interrupts(checkpoint: Checkpoint, above: tuple[str, ...] = ()) -> Iterator[Interrupt]:
    """Give the open questions of a run and of all runs inside it, each with the way to it."""
    if not (checkpoint.asked or checkpoint.children):
        return
    here = (*above, checkpoint.agent)
    names = _names(checkpoint)
    for asked in checkpoint.asked:
        if not asked.answered:
            _, _, call_id = asked.site.partition(":")
            path = (*here, names[call_id]) if call_id in names else here
            yield Interrupt(asked.id, asked.payload, path)
    for call_id, children in checkpoint.children.items():
        for child in children:
            yield from interrupts(child, (*here, names.get(call_id, call_id)))


def check_answers(checkpoint: Checkpoint, answers: Mapping[str, object]) -> None:
    """Refuse an answer to what nothing here has asked."""
    open_ids = [interrupt.id for interrupt in interrupts(checkpoint)]
    unknown = [name for name in answers if name not in open_ids]
    if unknown:
        known = ", ".join(open_ids) or "none is open"
        msg = f"answers has {', '.join(map(repr, unknown))}, and the open interrupts are: {known}"
        raise CheckpointError(msg)


def answered(asked: Sequence[Asked], interrupt_id: str, answer: object) -> tuple[Asked, ...]:
    """Put an answer to its question, if it is among these."""
    return tuple(
        replace(one, answered=True, answer=answer) if one.id == interrupt_id else one for one in asked
    )


def answered_inside(
    children: Mapping[str, Sequence[Checkpoint]], interrupt_id: str, answer: object
) -> dict[str, tuple[Checkpoint, ...]]:
    """Put an answer to its question, if it was asked by one of these runs or inside one."""
    return {
        call_id: tuple(
            replace(
                child,
                asked=answered(child.asked, interrupt_id, answer),
                children=answered_inside(child.children, interrupt_id, answer),
            )
            for child in inside
        )
        for call_id, inside in children.items()
    }


def with_partial(checkpoint: Checkpoint) -> Checkpoint:
    """Keep the answers that were cut: each model is shown what it had said, and told to go on."""
    kept = (checkpoint.partial, GO_ON) if checkpoint.partial is not None else ()
    return replace(
        checkpoint,
        messages=(*checkpoint.messages, *kept),
        partial=None,
        children={call: tuple(map(with_partial, inside)) for call, inside in checkpoint.children.items()},
    )


def without_shared(child: Checkpoint, history: Sequence[Message]) -> Checkpoint:
    """Leave out of a child's checkpoint the messages that it begins with as its parent's history does."""
    shared = 0
    for ours, theirs in zip(history, child.messages, strict=False):
        if ours != theirs:
            break
        shared += 1
    return replace(child, messages=child.messages[shared:], shared=shared) if shared else child


def with_shared(child: Checkpoint, history: Sequence[Message]) -> Checkpoint:
    """Give a child's checkpoint back what it shares with its parent."""
    if not child.shared:
        return child
    return replace(child, messages=(*history[: child.shared], *child.messages), shared=0)


def _names(checkpoint: Checkpoint) -> dict[str, str]:
    last = checkpoint.messages[-1] if checkpoint.messages else None
    return {call.id: call.name for call in last.calls} if last is not None else {}
