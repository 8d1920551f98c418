"""Laws of a session: they hold whatever is asked of it, whatever its runs do, and whenever a worker dies."""

import time
from collections.abc import Callable, Iterator

from hypothesis import given
from hypothesis import strategies as st

from andon.core.command import (
    ON_BUSY,
    Answer,
    Cancel,
    Command,
    Halt,
    Pause,
    Push,
    Release,
    Resume,
    Steer,
)
from andon.core.fold import State
from andon.core.items import (
    MessageAdded,
    ModelEnded,
    ModelStarted,
    RunEnded,
    RunStarted,
    Steered,
    ToolEnded,
    ToolStarted,
)
from andon.core.journal import (
    Entry,
    HandedOver,
    Quarantined,
    Received,
    record_from_json,
    record_to_json,
)
from andon.core.limits import Usage
from andon.core.live import Live
from andon.core.messages import Call, Message, Result, ResultState
from andon.core.outcome import Outcome
from andon.core.session import SessionState, fold_session
from andon.core.stop import Cause, Stop
from tests.core.recorded import KEY, said
from tests.core.test_session import Desk
from tests.core.values import stops

MOVES = st.one_of(
    st.tuples(st.just("push"), st.integers(0, 5), st.sampled_from(ON_BUSY)),
    st.tuples(st.just("ask"), st.sampled_from(["steer", "cancel", "cancel queued"]), st.integers(0, 6)),
    st.tuples(st.just("stop"), st.sampled_from(["pause", "halt", "halt now", "cancel"]), stops(caused=False)),
    st.tuples(st.just("go"), st.sampled_from(["resume", "answer", "release"])),
    st.tuples(st.just("work"), st.sampled_from(["get on", "hear", "die", "hand over", "quarantine"])),
    st.tuples(
        st.just("end"), st.sampled_from(["end_turn", "cancelled", "cancelled", "interrupt", "limit", "error"])
    ),
)
BEGIN: list[tuple[object, ...]] = [("push", 0, "enqueue"), ("work", "get on")]


def _begun(more: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    return [*BEGIN, *more]


STORIES = st.lists(MOVES, max_size=25).map(_begun)  # with a live run, which is what most is about


class Play(Desk):
    """A session to which anything may happen that commands, workers and runs can do."""

    def __init__(self) -> None:
        super().__init__()
        self.pushed: dict[str, str] = {}  # the last command of each run that was pushed

    def play(self, move: tuple[object, ...]) -> None:
        """Let one thing happen, if it can."""
        kind, *rest = move
        moves: dict[object, Callable[..., None]] = {
            "push": self._push,
            "ask": self._ask,
            "stop": self._stop,
            "go": self._go,
            "work": self._work,
            "end": self._end,
        }
        moves[kind](*rest)

    def _push(self, number: int, on_busy: str) -> None:
        run_id, name = f"r{number}", self._next()
        push = Push(id=name, at=1.0, run_id=run_id, message=Message.user(run_id), on_busy=on_busy)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        self.pushed[run_id] = name
        self.told(push)

    def _ask(self, what: str, number: int) -> None:
        name = self._next()
        run_id = f"r{number}" if number < 6 else None
        if what == "steer":
            self.told(Steer(id=name, at=1.0, message=Message.user(name), run_id=run_id))
            return
        stop = Stop.now().bind(1.0, Cause(id=name))
        self.told(Cancel(id=name, at=1.0, stop=stop, run_id=run_id, queued=what == "cancel queued"))

    def _stop(self, what: str, asked: Stop) -> None:
        name = self._next()
        stop = asked.bind(1.0, Cause(id=name))
        commands: dict[str, Command] = {
            "pause": Pause(id=name, at=1.0, stop=stop),
            "halt": Halt(id=name, at=1.0),
            "halt now": Halt(id=name, at=1.0, stop=stop),
            "cancel": Cancel(id=name, at=1.0, stop=stop),
        }
        self.told(commands[what])

    def _go(self, what: str) -> None:
        name = self._next()
        commands: dict[str, Command] = {
            "resume": Resume(id=name, at=1.0, run_id=f"on {name}"),
            "answer": Answer(id=name, at=1.0, run_id=f"on {name}", answers={"q": "yes"}),
            "release": Release(id=name, at=1.0),
        }
        self.told(commands[what])

    def _work(self, what: str) -> None:
        live = self.state.live
        if what == "quarantine":
            self.write(Quarantined(why="so it is"))
        elif live is None:
            if self.state.ready is not None:
                self.start()
        elif what == "get on":
            step = live.state.steps + 1
            self.write(ModelStarted(step=step))
            self.write(ModelEnded(step=step, usage=Usage(output_tokens=1)))
        elif what == "hear":
            for one in list(live.steers.values()):
                self.write(Steered(id=one.id, message=one.message))
        elif what == "die":
            self.die()
        else:
            self.write(HandedOver(run_id=live.run_id, checkpoint=live.checkpoint("a")))

    def _end(self, reason: str) -> None:
        if self.state.live is not None and not self.state.quarantined:
            self.end(reason, *(["q"] if reason == "interrupt" else []))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        elif self.state.ready is not None:
            self.start()

    def places(self, run_id: str) -> list[str]:
        """Say where a run that was pushed is."""
        state = self.state
        found = {
            "queued": any(one.run_id == run_id for one in state.queue),
            "live": state.live is not None and state.live.run_id == run_id,
            "ended": run_id in state.ended,
            "rejected": state.fates[self.pushed[run_id]].problem is not None,
            "said": run_id in state.said,
        }
        return [place for place, is_there in found.items() if is_there]


def of_state(state: State) -> dict[str, object]:
    """All that the state of a run says."""
    return {name: getattr(state, name) for name in State.__slots__ if not name.startswith("_")}


def of_live(live: Live | None) -> dict[str, object] | None:
    """All that a live run says."""
    if live is None:
        return None
    inside = {path: (run.agent, run.call_id, of_state(run.state)) for path, run in live.inside.items()}
    return {**vars(live), "state": of_state(live.state), "inside": inside}


def facts(state: SessionState) -> dict[str, object]:
    """All that a session says, but where in its journal and mailbox it is."""
    changes = {"n", "cursor", "live", "changed"}
    return {
        **{name: value for name, value in vars(state).items() if name not in changes},
        "live": of_live(state.live),
        "ready": state.ready,
    }


@given(STORIES)
def test_every_push_is_in_exactly_one_place(story: list[tuple[object, ...]]) -> None:
    """It waits, is live, has ended, was rejected, or was said to a live run: never lost, never twice."""
    play = Play()
    for move in story:
        play.play(move)
        for run_id in play.pushed:
            assert len(play.places(run_id)) == 1, (move, run_id, play.places(run_id))


@given(STORIES)
def test_what_is_asked_of_a_live_run_is_never_weakened(story: list[tuple[object, ...]]) -> None:
    """Neither by another request, nor by a crash, nor where a worker hands over."""
    play = Play()
    for move in story:
        live = play.state.live
        before = None if live is None else live.stop
        play.play(move)
        if live is not None and play.state.live is live and before is not None:
            assert live.stop is not None
            assert live.stop == before.join(live.stop), move


@given(STORIES, st.integers(0, 60))
def test_a_part_of_a_journal_and_the_rest_add_up_to_the_whole(
    story: list[tuple[object, ...]], cut: int
) -> None:
    """Whoever reads it, and from wherever, comes to the same: what its writer knew."""
    play = Play()
    for move in story:
        play.play(move)
    read = record_from_json(record_to_json(play.entries))
    state = fold_session(KEY, read[:cut])
    for entry in read[cut:]:
        state.apply(entry)
    assert facts(state) == facts(fold_session(KEY, read)) == facts(play.state)


@given(STORIES)
def test_a_command_that_comes_twice_has_one_effect(story: list[tuple[object, ...]]) -> None:
    """At once, or much later."""
    play = Play()
    for move in story:
        play.play(move)
    for entry in list(play.entries):
        if isinstance(entry, Received):
            before = facts(play.state)
            play.tell(entry.command)
            after = facts(play.state)
            assert {**after, "touched": 0} == {**before, "touched": 0}, entry


@given(STORIES)
def test_a_worker_has_work_only_where_it_could_do_it(story: list[tuple[object, ...]]) -> None:
    """A run goes on or starts, one at a time, and none in quarantine."""
    play = Play()
    for move in story:
        play.play(move)
        state = play.state
        assert state.has_work == (
            not state.quarantined and (state.live is not None or state.ready is not None)
        )
        assert state.live is None or state.ready is None
        rows = {run_id: state.row(run_id) for run_id in (*play.pushed, *state.ended)}
        live = [run_id for run_id, row in rows.items() if row and row.is_live and row.began is not None]
        assert len(live) <= 1, move


# Speed


def _turn(number: int) -> Iterator[list[Entry]]:
    run_id = f"run {number}"
    look = [Call("look", {"where": "there", "what": "it " * 10}, f"c{number}_{k}") for k in range(2)]
    found = tuple(Result(call.id, call.name, "red " * 50) for call in look)
    yield [Received(seq=number, command=said("What is it? " * 5, run_id))]
    yield [
        RunStarted(run_id=run_id, agent="a", model="m"),
        MessageAdded(message=Message.user("What is it? " * 5)),
    ]
    for step in (1, 2):
        yield [ModelStarted(step=step, model="m")]
        words = Message.assistant("It is red. " * 30, *(look if step == 1 else []))
        yield [ModelEnded(step=step, usage=Usage(output_tokens=80)), MessageAdded(message=words)]
        if step == 1:
            yield [ToolStarted(call_id=call.id, name=call.name) for call in look]
            for one in found:
                state = ResultState.COMPLETED
                yield [ToolEnded(call_id=one.call_id, name=one.name, state=state, content=one.content)]
            yield [MessageAdded(message=Message("tool", found))]
    yield [RunEnded(outcome=Outcome(run_id=run_id, stop_reason="end_turn"))]


def test_a_long_session_is_read_in_one_pass() -> None:
    """All of its ten thousand items; the time that it takes is told, and bounded nowhere."""
    records: list[bytes] = []
    number = count = 0
    while count < 10_000:
        number += 1
        for entries in _turn(number):
            records.append(record_to_json(entries))
            count += len(entries)
    began = time.perf_counter()
    state = fold_session(KEY, [entry for record in records for entry in record_from_json(record)])
    took = time.perf_counter() - began
    print(f"{count} items of {number} runs in {sum(map(len, records)):,} bytes: {took * 1_000:.0f} ms")  # noqa: T201
    assert len(state.ended) == number
    assert len(state.messages) == 4 * number
