"""Family: what holds of a run and of all runs inside it, taken together."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from andon.core.items import (
    Item,
    ModelEnded,
    ModelStarted,
    RunEnded,
    RunStarted,
    StopRequested,
    ToolEnded,
    ToolStarted,
)
from andon.core.limits import NOTHING, Usage
from andon.core.messages import ResultState
from andon.core.outcome import Outcome
from andon.testing.log import one_run
from andon.testing.trial import Seen


def family(seen: Seen, outcome: Outcome) -> Iterator[str]:
    """Name what does not hold between a run and those inside it."""
    ended = ends(seen)
    left = bool(seen.abandoned)
    if seen.alive_at_end and not left:
        yield f"all inside a run have ended when it has: {len(seen.alive_at_end)} had not"
    for run_id, items in seen.family.items():
        if run_id != outcome.run_id:
            yield from _child(seen, items, ended.get(run_id))
            yield from _stops(seen, items, ended.get(run_id))
    if not left:
        yield from _usage(seen, outcome)
    yield from _kept(seen, outcome)


def ends(seen: Seen) -> dict[str, Outcome]:
    """Give the outcome of each run that has ended, by its id."""
    return {
        run_id: item.outcome
        for run_id, items in seen.family.items()
        for item in items
        if isinstance(item, RunEnded) and not item.path
    }


def child_of(seen: Seen, run_id: str, call_id: str) -> list[str]:
    """Give the ids of the runs that a call of this run has started."""
    begun = ((child, items[0]) for child, items in seen.family.items() if items)
    return [
        child
        for child, item in begun
        if isinstance(item, RunStarted) and (item.parent, item.call_id) == (run_id, call_id)
    ]


def _child(seen: Seen, items: Sequence[Item], outcome: Outcome | None) -> Iterator[str]:
    begun = items[0]
    if not isinstance(begun, RunStarted) or begun.parent not in seen.family:
        yield f"a child says of which run it is one: {begun!r:.80}"
        return
    if outcome is not None:
        yield from (f"in its child {begun.agent}: {one}" for one in one_run(items, outcome))
        if not isinstance(items[-1], RunEnded):
            yield f"the terminal event of a child is its last: after it came {type(items[-1]).__name__}"
    mine = [replace(item, n=0) for item in items if not isinstance(item, RunEnded)]
    told = [
        replace(item, n=0, path=item.path[1:])
        for item in seen.family[begun.parent]
        if item.path[:1] == (begun.run_id,)
    ]
    if told != mine[: len(told)] or (len(told) != len(mine) and not seen.abandoned):
        yield f"the log of its parent has what the child {begun.agent} did: {len(told)} of {len(mine)} items"


def _stops(seen: Seen, items: Sequence[Item], outcome: Outcome | None) -> Iterator[str]:
    """Of its parent's stops a child hears those that are for it, and no others."""
    begun = items[0]
    if not isinstance(begun, RunStarted) or begun.run_id not in seen.bonds:
        return
    above = seen.family.get(begun.parent, ())
    asked = [
        (place, item.stop)
        for place, item in enumerate(above)
        if isinstance(item, StopRequested) and not item.path
    ]
    meant = [place for place, stop in asked if stop.passed_on(seen.bonds[begun.run_id]) is not None]
    heard = [item.stop for item in items if isinstance(item, StopRequested) and not item.path]
    from_above = any(cause.source == "parent" for stop in heard for cause in stop.causes)
    if from_above and not meant:
        yield f"a stop that is for a run alone leaves its child {begun.agent} undisturbed"
    later = above[meant[0] :] if meant else ()
    goes_on = not seen.scenario.foreign and any(  # from other threads, items come late
        item.path == (begun.run_id,) and isinstance(item, ModelStarted | ToolStarted) for item in later
    )
    cut = outcome is not None and outcome.cancelled is not None and seen.mode.whom == "root"
    if meant and not from_above and (goes_on or cut):
        yield f"a stop that is for the child {begun.agent} reaches it"


def _usage(seen: Seen, outcome: Outcome) -> Iterator[str]:
    """What the whole tree has spent is what each of its runs has, added up."""
    own = [item for items in seen.family.values() for item in items if not item.path]
    spent = sum((item.usage for item in own if isinstance(item, ModelEnded)), NOTHING)
    before = NOTHING if seen.saved is None else seen.saved.usage
    total = replace(
        spent,
        model_calls=sum(isinstance(item, ModelStarted) and item.attempt == 1 for item in own),
        tool_calls=sum(isinstance(item, ToolStarted) and not (item.step or item.again) for item in own),
    )
    if (whole := before + total) != outcome.usage:
        yield f"the usage of a tree adds up: {whole} was spent, {_told(outcome.usage)} is told"


def _told(usage: Usage) -> str:
    return f"{usage}"


def _kept(seen: Seen, outcome: Outcome) -> Iterator[str]:
    """A call that was cut with a run inside goes on if that is wanted, or if nothing harmful had begun."""
    recursive, ended = False, ends(seen)
    agents = {tool.name for tool in seen.scene.agent.tools if tool.agent}
    for item in seen.family.get(outcome.run_id, ()):
        if isinstance(item, StopRequested) and not item.path:
            recursive = item.stop.recursive
        if not isinstance(item, ToolEnded) or item.path or item.state is not ResultState.UNKNOWN:
            continue
        inside = child_of(seen, outcome.run_id, item.call_id)
        if not inside or any(one.call_id == item.call_id for one in seen.abandoned):
            continue
        # Other code than an agent's own tool may have done more, once what it had started had ended.
        cut = any(ended[one].cancelled is not None for one in inside if one in ended)
        if recursive and (cut or item.name in agents) and not item.again:
            yield f"with recursive the state of what runs inside is kept: that of {item.name} is not"
        if item.again and not item.children and _harmed(seen, inside):
            yield f"what began inside {item.name} must not begin twice, and it is to be asked again"


def _harmed(seen: Seen, runs: Sequence[str]) -> bool:
    """Say whether a tool that may not be repeated was started in one of these runs, or inside."""
    once = set(seen.scene.tally.begun) - seen.scene.tally.again
    items = [item for run_id in runs for item in seen.family.get(run_id, ())]
    return any(isinstance(item, ToolStarted) and item.name in once for item in items)
