"""Turns: the diagrams of turn-loop.md, out of the tables by which a turn loop decides."""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from andon.core.outcome import StopReason
from andon.core.turns import PHASES, STAGES, Move, State, TurnEnd, verdict

S = TypeVar("S", bound=StrEnum)


def phases() -> str:
    """Draw the phases of a loop."""
    return _states(PHASES)


def stages() -> str:
    """Draw the stages of its stop."""
    return _states(STAGES)


def _states(table: Mapping[S, Mapping[Move, S]]) -> str:
    names = {state: state.name.lower() for state in table}
    first = next(iter(table))
    lines = [
        "stateDiagram-v2",
        f"    [*] --> {names[first]}",
        *(f'    state "{state}" as {name}' for state, name in names.items() if state != name),
        *(
            f"    {names[start]} --> {names[to]}: {move}"
            for start, moves in table.items()
            for move, to in moves.items()
        ),
        *(f"    {names[state]} --> [*]" for state, moves in table.items() if not moves),
    ]
    return "\n".join(["```mermaid", *lines, "```"])


def ends() -> str:
    """Tell what comes of a turn, by how its agent ended and what was asked meanwhile."""
    asked = {
        "nothing": State(),
        "a preempt": State(preempted=True),
        "a stop that cancels": State(stopped=True),
        "both": State(preempted=True, stopped=True),
    }
    reasons: tuple[StopReason, ...] = ("end_turn", "cancelled", "interrupt", "error")
    rows = [
        ("its callback raised", *("broken" if _broken(state) else "" for state in asked.values())),
        *((f"`{reason}`", *(verdict(s, reason, broken=False) for s in asked.values())) for reason in reasons),
    ]
    head = ("the agent ended as", *(f"asked: {name}" for name in asked))
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _broken(state: State) -> bool:
    return all(verdict(state, reason, broken=True) is TurnEnd.BROKEN for reason in ("end_turn", "cancelled"))
