"""Hypothesis strategies for the values of core."""

from collections.abc import Sequence

from hypothesis import strategies as st
from msgspec import Raw

from andon.core.checkpoint import VERSION, Asked, Checkpoint
from andon.core.command import (
    ON_BUSY,
    Answer,
    Cancel,
    Command,
    Halt,
    Key,
    Pause,
    Push,
    Release,
    Resume,
    Steer,
)
from andon.core.items import (
    Answered,
    CallDelta,
    Delta,
    Event,
    Interrupted,
    Item,
    MessageAdded,
    ModelEnded,
    ModelStarted,
    ReasoningDelta,
    RunEnded,
    RunStarted,
    Steered,
    StopRequested,
    TextDelta,
    ToolEnded,
    ToolProgress,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from andon.core.journal import Entry, HandedOver, Quarantined, Received, SessionCreated
from andon.core.limits import Limits, Usage
from andon.core.messages import (
    Call,
    Image,
    Message,
    Part,
    Payload,
    Reasoning,
    Result,
    ResultState,
    Text,
)
from andon.core.outcome import Interrupt, Outcome
from andon.core.row import RUN_STATES, Row
from andon.core.steer import WHEN
from andon.core.stop import SOURCES, Abandoned, Cause, Point, Stop, StopReport, StopResult, Where

SHORT = st.text(max_size=8)
COUNTS = st.integers(0, 9)
TIMES = st.integers(0, 50).map(float)
JSON: st.SearchStrategy[object] = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | SHORT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SHORT, inner, max_size=3),
    max_leaves=4,
)
OBJECTS = st.dictionaries(SHORT, JSON, max_size=3)

# Stops

POINTS = st.integers(1, 7).map(Point)


def causes(*, asked: bool = False) -> st.SearchStrategy[Cause]:
    """Causes; few ids and times, so that they meet."""
    return st.builds(
        Cause,
        source=st.sampled_from(sorted(SOURCES)),
        by=st.none() | SHORT,
        reason=st.none() | SHORT,
        id=st.sampled_from("abcd"),
        at=TIMES,
        asked=stops(caused=False) if asked else st.none(),
    )


def stops(*, caused: bool = True) -> st.SearchStrategy[Stop]:
    """Stops of every kind, with or without deadlines and causes."""
    return st.builds(
        Stop,
        immediate=st.booleans(),
        points=POINTS,
        grace=st.none() | TIMES.map(lambda at: at + 1),
        deadline=st.none() | TIMES,
        recursive=st.booleans(),
        causes=st.lists(causes(asked=True), max_size=3).map(tuple) if caused else st.just(()),
    )


# Stops as they are joined: the causes of each are a set already.
JOINED = st.builds(Stop.join, stops(), stops())

REPORTS = st.builds(
    StopReport,
    result=st.sampled_from(StopResult),
    accepted=st.booleans(),
    stopped_at=st.none() | st.sampled_from(Where),
    escalated_by=st.sampled_from([None, "timeout", "request"]),
    causes=st.lists(causes(asked=True), max_size=2).map(tuple),
    latency=TIMES,
    abandoned=st.lists(st.builds(Abandoned, name=SHORT, call_id=SHORT), max_size=2).map(tuple),
    checkpoint=st.none() | SHORT,
    durable=st.booleans(),
    checkpoint_error=st.none() | SHORT,
    run_id=st.none() | SHORT,
)

# Messages

IMAGES = st.builds(Image, data=st.binary(max_size=16)) | st.builds(
    Image, media_type=st.just("image/jpeg"), url=st.just("https://example.org/cord.jpg")
)
PAYLOADS = st.builds(
    Payload, provider=SHORT, data=st.sampled_from([Raw(b'{"id": "m1", "deep": [1, 2.5, null]}'), Raw(b"[]")])
)
CALLS = st.builds(Call, name=st.sampled_from(["look", "pay"]), arguments=OBJECTS, id=st.sampled_from("xyz"))
RESULTS = st.builds(
    Result,
    call_id=st.sampled_from("wxyz"),
    name=st.sampled_from(["look", "pay"]),
    content=SHORT,
    state=st.sampled_from(ResultState),
)
PARTS: st.SearchStrategy[Part] = (
    st.builds(Text, st.sampled_from(["", " ", "yes", "no"])) | st.builds(Reasoning, SHORT) | IMAGES | CALLS
)


def _unique(parts: Sequence[Part]) -> tuple[Part, ...]:
    """A model's answer never has two calls of one id: the draft sees to that."""
    seen: set[str] = set()
    kept: list[Part] = []
    for part in parts:
        if isinstance(part, Call):
            if part.id in seen:
                continue
            seen.add(part.id)
        kept.append(part)
    return tuple(kept)


MESSAGES = st.one_of(
    st.builds(
        Message,
        st.just("user"),
        st.lists(PARTS.filter(lambda p: not isinstance(p, Call)), max_size=3).map(tuple),
    ),
    st.builds(
        Message,
        st.just("assistant"),
        st.lists(PARTS, max_size=4).map(_unique),
        cut=st.booleans(),
        synthetic=st.booleans(),
        payload=st.none() | PAYLOADS,
    ),
    st.builds(Message, st.just("tool"), st.lists(RESULTS, max_size=3).map(tuple)),
)
HISTORIES = st.lists(MESSAGES, max_size=6)

USAGES = st.builds(
    Usage,
    input_tokens=COUNTS,
    output_tokens=COUNTS,
    cache_read_tokens=COUNTS,
    cache_write_tokens=COUNTS,
    model_calls=COUNTS,
    tool_calls=COUNTS,
    cost=st.none() | COUNTS.map(float),
    estimated=st.booleans(),
)

CHECKPOINTS = st.builds(
    Checkpoint,
    version=st.just(VERSION),
    run_id=SHORT,
    agent=SHORT,
    messages=HISTORIES.map(tuple),
    results=st.lists(RESULTS, max_size=2).map(tuple),
    steps=COUNTS,
    usage=USAGES,
)

ASKED = st.builds(
    Asked,
    id=SHORT,
    site=st.sampled_from(["tool:x", "before_tool:y", "before_model"]),
    k=COUNTS,
    payload=JSON,
    answered=st.booleans(),
    answer=JSON,
)


def _with_children(inside: st.SearchStrategy[Checkpoint]) -> st.SearchStrategy[Checkpoint]:
    return st.builds(
        Checkpoint,
        version=st.just(VERSION),
        run_id=SHORT,
        agent=SHORT,
        model=SHORT,
        tools=st.lists(SHORT, max_size=2).map(tuple),
        messages=st.lists(MESSAGES, max_size=2).map(tuple),
        children=st.dictionaries(st.sampled_from("xyz"), st.lists(inside, max_size=2).map(tuple), max_size=2),
        asked=st.lists(ASKED, max_size=2).map(tuple),
        shared=COUNTS,
        partial=st.none() | MESSAGES,
    )


TREES = st.recursive(CHECKPOINTS, _with_children, max_leaves=4)

OUTCOMES = st.builds(
    Outcome,
    run_id=SHORT,
    stop_reason=st.sampled_from(["end_turn", "cancelled", "interrupt", "limit", "error"]),
    messages=HISTORIES.map(tuple),
    usage=USAGES,
    cancelled=st.none() | REPORTS,
    limit=st.none() | SHORT,
    error=st.none() | SHORT,
    checkpoint=st.none() | CHECKPOINTS,
)

# Events

Fields = dict[str, st.SearchStrategy[object]]
PATHS = st.lists(SHORT.filter(bool), max_size=2).map(tuple)
NUMBERS = st.integers(1, 99)

# What each kind of event is built from, beside its path: the strategies below know these kinds.
DELTA_KINDS: dict[type[Delta], Fields] = {
    TextDelta: {"text": SHORT},
    ReasoningDelta: {"text": SHORT},
    CallDelta: {"name": SHORT, "arguments": SHORT, "call_id": SHORT},
    ToolProgress: {"call_id": SHORT, "value": JSON},
}
ITEM_KINDS: dict[type[Item], Fields] = {
    RunStarted: {
        "run_id": SHORT,
        "agent": SHORT,
        "model": SHORT,
        "history": HISTORIES.map(tuple),
        "checkpoint": st.none() | CHECKPOINTS,
    },
    MessageAdded: {"message": MESSAGES},
    ModelStarted: {"step": NUMBERS, "attempt": NUMBERS, "model": SHORT},
    ModelEnded: {
        "step": NUMBERS,
        "attempt": NUMBERS,
        "end": st.sampled_from(["complete", "cut", "failed"]),
        "usage": USAGES,
        "error": st.none() | SHORT,
    },
    ToolStarted: {"call_id": SHORT, "name": SHORT},
    ToolEnded: {
        "call_id": st.sampled_from("xyz"),
        "name": SHORT,
        "state": st.sampled_from(ResultState),
        "content": SHORT,
    },
    Steered: {"message": MESSAGES, "id": SHORT},
    StopRequested: {"stop": stops()},
    Interrupted: {"id": SHORT, "payload": JSON, "site": SHORT, "k": st.integers(0, 9)},
    Answered: {"id": SHORT, "answer": JSON},
    TurnStarted: {"turn": NUMBERS},
    TurnEnded: {"turn": NUMBERS, "end": SHORT},
    RunEnded: {"outcome": OUTCOMES},
}

DELTAS: st.SearchStrategy[Delta] = st.one_of(
    *(st.builds(kind, path=PATHS, **fields) for kind, fields in DELTA_KINDS.items())
)


def items(paths: st.SearchStrategy[tuple[str, ...]] = PATHS) -> st.SearchStrategy[Item]:
    """Every kind of item."""
    where = {"n": NUMBERS, "at": TIMES, "path": paths}
    return st.one_of(*(st.builds(kind, **fields, **where) for kind, fields in ITEM_KINDS.items()))


EVENTS: st.SearchStrategy[Event] = DELTAS | items()
OWN_EVENTS: st.SearchStrategy[Event] = DELTAS | items(st.just(()))

# Sessions

IDS = st.sampled_from(["a", "b", "c"])
KEYS = st.builds(Key, st.just("app"), st.just("user"), IDS)
LIMITS = st.builds(Limits, model_calls=st.none() | NUMBERS, cost=st.none() | NUMBERS.map(float))


def commands(
    ids: st.SearchStrategy[str] = IDS, run_ids: st.SearchStrategy[str] = IDS
) -> st.SearchStrategy[Command]:
    """Every kind of command."""
    who = {"id": ids, "at": TIMES, "by": st.none() | SHORT}
    bound = stops().filter(lambda stop: stop.grace is None)
    words = SHORT.map(lambda text: Message.user(text or "go"))
    return st.one_of(
        st.builds(
            Push,
            run_id=run_ids,
            message=words,
            on_busy=st.sampled_from(ON_BUSY),
            limits=st.none() | LIMITS,
            **who,
        ),
        st.builds(Steer, message=words, when=st.sampled_from(WHEN), run_id=st.none() | run_ids, **who),
        st.builds(Cancel, stop=bound, run_id=st.none() | run_ids, queued=st.booleans(), **who),
        st.builds(Halt, stop=st.none() | bound, **who),
        st.builds(Pause, stop=bound, **who),
        st.builds(Resume, run_id=run_ids, **who),
        st.builds(Answer, run_id=run_ids, answers=OBJECTS, **who),
        st.builds(Release, **who),
    )


ENTRIES: st.SearchStrategy[Entry] = st.one_of(
    items(),
    st.builds(SessionCreated, n=NUMBERS, at=TIMES, state=OBJECTS),
    st.builds(Received, n=NUMBERS, at=TIMES, seq=NUMBERS, command=commands()),
    st.builds(HandedOver, n=NUMBERS, at=TIMES, run_id=SHORT, checkpoint=TREES),
    st.builds(Quarantined, n=NUMBERS, at=TIMES, why=SHORT),
)

ROWS = st.builds(
    Row,
    run_id=SHORT,
    app=IDS,
    user=IDS,
    session=IDS,
    state=st.sampled_from(RUN_STATES),
    n=COUNTS,
    queued=TIMES,
    began=st.none() | TIMES,
    ended=st.none() | TIMES,
    prompt=SHORT,
    step=SHORT,
    usage=USAGES,
    by=st.none() | SHORT,
    cancelled=st.none() | REPORTS,
    interrupts=st.lists(st.builds(Interrupt, SHORT, JSON), max_size=2).map(tuple),
    limit=st.none() | SHORT,
    error=st.none() | SHORT,
    went_on_as=st.none() | SHORT,
)
