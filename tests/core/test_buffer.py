"""A buffer keeps what waits in the order of its pushes, and loses nothing."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from andon.core.buffer import Buffer


def test_items_come_out_as_they_went_in() -> None:
    """All at once, and then there are none."""
    buffer = Buffer[str]()
    assert [buffer.push(item) for item in "abc"] == [True, True, True]
    assert len(buffer) == 3
    assert buffer.take_all() == ["a", "b", "c"]
    assert (buffer.take_all(), len(buffer)) == ([], 0)


def test_what_is_put_back_comes_before_what_came_since() -> None:
    """In the order in which it was taken."""
    buffer = Buffer[str]()
    buffer.push("a")
    buffer.push("b")
    taken = buffer.take_all()
    buffer.push("c")
    buffer.push_front(taken)
    assert buffer.take_all() == ["a", "b", "c"]


def test_an_iterator_is_put_back_too() -> None:
    """It is gone through once."""
    buffer = Buffer[int]()
    buffer.push_front(iter([1, 2]))
    assert buffer.take_all() == [1, 2]


def test_a_closed_buffer_takes_no_more() -> None:
    """What it refuses is late; what it has stays, and what was taken can be put back."""
    buffer = Buffer[str]()
    buffer.push("a")
    taken = buffer.take_all()
    buffer.push("b")
    buffer.close()
    buffer.close()
    assert not buffer.push("c")
    buffer.push_front(taken)
    assert (buffer.take_all(), buffer.late) == (["a", "b"], ["c"])


def test_a_buffer_shows_what_it_holds() -> None:
    """And whether it is closed."""
    buffer = Buffer[str]()
    buffer.push("a")
    assert repr(buffer) == "<Buffer 1 waiting>"
    buffer.close()
    assert repr(buffer) == "<Buffer 1 waiting, closed>"


class Kept(RuleBasedStateMachine):
    """Whatever is done to it, each item is in one place, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = Buffer[int]()
        self.waiting: list[int] = []
        self.taken: list[int] = []
        self.late: list[int] = []
        self.closed = False
        self.count = 0

    @rule(n=st.integers(1, 3))
    def push(self, n: int) -> None:
        """Push some."""
        for _ in range(n):
            self.count += 1
            assert self.buffer.push(self.count) is not self.closed
            (self.late if self.closed else self.waiting).append(self.count)

    @rule()
    def take(self) -> None:
        """Take all."""
        taken = self.buffer.take_all()
        assert taken == self.waiting
        self.taken += taken
        self.waiting = []

    @rule(back=st.integers(0, 3))
    def put_back(self, back: int) -> None:
        """Put the last of what was taken back."""
        self.taken, some = self.taken[: len(self.taken) - back], self.taken[len(self.taken) - back :]
        self.buffer.push_front(some)
        self.waiting = some + self.waiting

    @rule()
    def close(self) -> None:
        """Close it."""
        self.buffer.close()
        self.closed = True

    @invariant()
    def nothing_is_lost(self) -> None:
        """What it says it has is what it has."""
        assert len(self.buffer) == len(self.waiting)
        assert self.buffer.late == self.late
        assert self.buffer.closed == self.closed
        assert sorted(self.waiting + self.taken + self.late) == list(range(1, self.count + 1))


TestKept = Kept.TestCase
