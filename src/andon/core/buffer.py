"""Buffer: what waits for its turn, in the order in which it came."""

from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class Buffer(Generic[T]):
    """Items in order; closed, it takes no more, and what it refused is its `late` items."""

    __slots__ = ("_items", "closed", "late")

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self.closed = False
        self.late: list[T] = []

    def push(self, item: T) -> bool:
        """Put an item at the end; False when it came too late."""
        if self.closed:
            self.late.append(item)
            return False
        self._items.append(item)
        return True

    def push_front(self, items: Iterable[T]) -> None:
        """Put back what had been taken, in order, before all that came since; also after the close."""
        self._items.extendleft(reversed(tuple(items)))

    def take_all(self) -> list[T]:
        """Take out whatever there is, in order."""
        # In one go: what a signal handler pushes in between is in the one or in the other.
        items, self._items = self._items, deque()
        return list(items)

    def close(self) -> None:
        """Take no more from now on."""
        self.closed = True

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return f"<Buffer {len(self)} waiting{', closed' if self.closed else ''}>"
