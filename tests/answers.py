"""Answers: what a human says to the questions of a paused run, through JSON."""

from andon import Agent, Outcome
from tests.whole import whole


def ids(outcome: Outcome) -> list[str]:
    """The open questions."""
    return [one.id for one in outcome.interrupts]


async def answered(agent: Agent, outcome: Outcome, *answers: object) -> Outcome:
    """Answer the first so many questions, through JSON, as another process would."""
    assert outcome.checkpoint is not None
    run = agent.start_from(
        outcome.checkpoint.to_json(), answers=dict(zip(ids(outcome), answers, strict=False))
    )
    async with run:
        return await whole(run)
