"""Again: a run that was stopped goes on in a fresh scene, and ends as one that nobody stopped."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from zlib import crc32

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from andon.core.checkpoint import Checkpoint
from andon.core.items import StopRequested, ToolEnded
from andon.core.limits import NOTHING, Usage
from andon.core.messages import Call, Message, Part, Result, ResultState
from andon.core.stop import Stop, Where
from andon.testing.family import ends
from andon.testing.invariants import broken
from andon.testing.scene import Mode, Scenario
from andon.testing.trial import Seen, Trial

MOST_HOPS = 20
MOST_BOUNDARIES = 50
GO_ON = {"cancelled", "interrupt"}
ONCE_MORE = Mode(name="gracefully, once more", stops=(Stop.graceful(),))
THE_SAME = "a resumed run has the history of one that nobody stopped"
GOES_ON = Mode(name="nobody stops it")
NAMES = re.compile(rb"(?<![0-9a-f])(?:[0-9a-f]{20}|[0-9a-f]{16})(?![0-9a-f])")  # of runs, and of questions


class End(Struct, frozen=True, kw_only=True):
    """How a run ended, across all its stops and resumes, and what was done on the way.

    `begun` is the tally, `asked` how often a model was asked, and `inside` the histories of all
    runs inside that came to their answer, as JSON.
    """

    stop_reason: str
    messages: tuple[Message, ...]
    begun: Mapping[str, int]
    asked: int
    usage: Usage = NOTHING
    inside: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()


Resume = Callable[[Scenario, bytes], End]


def go_on(scenario: Scenario, saved: bytes) -> End:
    """Resume a checkpoint, given as its JSON, in a fresh scene, until all its questions are answered.

    Many are stopped once more on the way, gracefully, at a boundary that depends on the checkpoint.
    """
    checkpoint = Checkpoint.from_json(saved)
    boundary: int | None = crc32(same(saved)) % MOST_BOUNDARIES
    ends: list[End] = []
    for _ in range(MOST_HOPS):
        mode = GOES_ON if boundary is None else ONCE_MORE
        seen = Trial(scenario, mode, saved=checkpoint, at_boundary=boundary).go()
        ends.append(end_of(seen))
        outcome, boundary = seen.outcome, None
        if outcome is None or outcome.stop_reason not in GO_ON or outcome.checkpoint is None:
            break
        checkpoint = outcome.checkpoint
    return joined(ends)


def end_of(seen: Seen) -> End:
    """Sum one trial up."""
    outcome = seen.outcome
    wrong = tuple(broken(seen)) if seen.saved is not None else ()
    return End(
        stop_reason=outcome.stop_reason if outcome else "none",
        messages=normal(outcome.messages) if outcome else (),
        begun=dict(seen.scene.tally.begun),
        asked=seen.asked,
        usage=outcome.usage if outcome else NOTHING,
        inside=tuple(_answered_inside(seen)),
        broken=wrong,
    )


def joined(ends: Sequence[End]) -> End:
    """Add up what was done; the last one says how it all ended."""
    begun: Counter[str] = Counter()
    for one in ends:
        begun.update(one.begun)
    return replace(
        ends[-1],
        begun=dict(begun),
        asked=sum(one.asked for one in ends),
        inside=tuple({history for one in ends for history in one.inside}),
        broken=tuple(words for one in ends for words in one.broken),
    )


def untouched_end(seen: Seen, resume: Resume) -> End:
    """Give the end of a trial that nobody stopped, its questions answered."""
    first, outcome = end_of(seen), seen.outcome
    if outcome is None or outcome.stop_reason != "interrupt" or outcome.checkpoint is None:
        return first
    return joined([first, resume(seen.scenario, outcome.checkpoint.to_json())])


def differences(untouched: End, seen: Seen, resume: Resume) -> Iterator[str]:
    """Let a run that was stopped go on, and name in what it differs from the one that nobody stopped."""
    outcome = seen.outcome
    if outcome is None or seen.mode.steer is not None:  # what was said to it is in its history
        return
    own = end_of(seen)
    if outcome.stop_reason in GO_ON:
        if outcome.checkpoint is None:
            yield f"a run that ended as {outcome.stop_reason} can be resumed: it has no checkpoint"
            return
        own = joined([own, resume(seen.scenario, outcome.checkpoint.to_json())])
    yield from (f"once it has gone on: {words}" for words in own.broken)
    if seen.mode.whom == "child" and seen.scenario.needs_all and own.stop_reason == "error":
        return
    if own.stop_reason != untouched.stop_reason:
        yield f"a resumed run ends as {untouched.stop_reason}: it ended as {own.stop_reason}"
        return
    if untouched.stop_reason == "end_turn" or _is_whole(seen):  # else how far it came depends on when
        yield from _histories(untouched, own, _forgiven(seen, own))
        yield from _effects(untouched, own, whole=_is_whole(seen), again=seen.scene.tally.again)


def _histories(untouched: End, own: End, forgiven: frozenset[str]) -> Iterator[str]:
    if len(own.messages) != len(untouched.messages):
        yield f"{THE_SAME}: it has {len(own.messages)} messages, not {len(untouched.messages)}"
        return
    for place, (was, would) in enumerate(zip(own.messages, untouched.messages, strict=True)):
        parts = [part for part in was.parts if not (isinstance(part, Result) and part.call_id in forgiven)]
        wanted = [part for part in would.parts if not (isinstance(part, Result) and part.call_id in forgiven)]
        if replace(was, parts=tuple(parts)) != replace(would, parts=tuple(wanted)):
            yield f"{THE_SAME}: message {place} is {parts!r:.200}, not {wanted!r:.200}"


def _forgiven(seen: Seen, own: End) -> frozenset[str]:
    """Name the calls whose results may be others, because a stop cut them, or what ran inside."""
    if _is_whole(seen):
        return frozenset()
    results = [result for message in own.messages for result in message.results]
    if seen.mode.whom == "child":
        states = {ResultState.FAILED, ResultState.UNKNOWN}
        return frozenset(result.call_id for result in results if result.state in states)
    said = {result.call_id for result in results if (result.name, result.content) in _said_when_cut(seen)}
    return frozenset(said | {result.call_id for result in results if result.state is ResultState.UNKNOWN})


def _said_when_cut(seen: Seen) -> set[tuple[str, str]]:
    """Give what tools have said while they were cut."""
    cut, said = False, set[tuple[str, str]]()
    for event in seen.events:
        cut = cut or (isinstance(event, StopRequested) and not event.path and event.stop.immediate)
        if cut and isinstance(event, ToolEnded) and not event.path:
            said.add((event.name, event.content))
    return said


def _effects(untouched: End, own: End, *, whole: bool, again: frozenset[str]) -> Iterator[str]:
    for name, most in untouched.begun.items():
        times = own.begun.get(name, 0)
        if name not in again and (times > most or (whole and times < most)):
            yield f"what must not be repeated is not: {name} began {times} times over all, {most} are due"
    if whole and own.asked != untouched.asked:
        yield f"no model is asked again: it was {own.asked} times over all, {untouched.asked} are due"
    if whole and own.usage != untouched.usage:
        yield f"a resumed run has spent what one has that nobody stopped: {own.usage}, not {untouched.usage}"
    if whole and set(own.inside) != set(untouched.inside):
        yield "the histories inside a resumed run are those inside one that nobody stopped"


def _is_whole(seen: Seen) -> bool:
    """Say whether nothing was cut: neither the run, nor anything inside."""
    reports = [outcome.cancelled for outcome in ends(seen).values()]
    cut = any(report is not None and report.stopped_at in {Where.MODEL, Where.TOOLS} for report in reports)
    items = (item for own in seen.family.values() for item in own)
    now = any(isinstance(item, StopRequested) and item.stop.immediate for item in items)
    return not (cut or now) and seen.mode.whom == "root"


def _answered_inside(seen: Seen) -> list[str]:
    return [
        msgspec.json.encode(normal(outcome.messages)).decode()
        for run_id, outcome in ends(seen).items()
        if seen.outcome is not None and run_id != seen.outcome.run_id and outcome.stop_reason == "end_turn"
    ]


def same(saved: bytes) -> bytes:
    """Give the JSON of a checkpoint without the names that differ from run to run."""
    names: dict[bytes, bytes] = {}
    return NAMES.sub(lambda found: names.setdefault(found[0], b"#%d" % len(names)), saved)


def normal(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Name calls by their order: their ids hold the id of the run that made them."""
    names: dict[str, str] = {}

    def named(part: Part) -> Part:
        match part:
            case Call(id=call_id):
                return replace(part, id=names.setdefault(call_id, f"#{len(names)}"))
            case Result(call_id=call_id):
                return replace(part, call_id=names.setdefault(call_id, f"#{len(names)}"))
            case _:
                return part

    return tuple(replace(message, parts=tuple(map(named, message.parts))) for message in messages)
