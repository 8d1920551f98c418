"""The explorer is awake in trees, too: it catches each of these faults, seeded one at a time."""
# pyright: reportPrivateUsage=false
# The faults are inside: that is where they are seeded.

from collections.abc import Callable
from typing import cast

import pytest

from andon.core import fold
from andon.core.checkpoint import Checkpoint
from andon.core.items import Answered, Event, Item, MessageAdded, ModelEnded, RunEnded
from andon.core.stop import Abandoned, Bond, Stop
from andon.runtime.nested import Place
from andon.runtime.record import Record
from andon.runtime.run import Run
from andon.runtime.scope import Scope
from andon.runtime.steering import Said, Steering
from andon.testing import TREE_MODES, explore
from tests.explore.trees import TREES

Patch = pytest.MonkeyPatch


def nothing(*_: object) -> None:
    """Stand where something was done."""


def a_child_is_not_told_of_now(patch: Patch) -> None:
    """It is only torn down with the task that waits for it."""
    inherit = Scope.inherit

    def deaf(self: Scope, stop: Stop, bond: Bond) -> None:
        if not stop.immediate:
            inherit(self, stop, bond)

    patch.setattr(Scope, "inherit", deaf)


def a_child_is_not_told_of_points(patch: Patch) -> None:
    """Recursive or not, only *now* goes down."""
    inherit = Scope.inherit

    def deaf(self: Scope, stop: Stop, bond: Bond) -> None:
        if stop.immediate:
            inherit(self, stop, bond)

    patch.setattr(Scope, "inherit", deaf)


def a_child_is_told_of_all(patch: Patch) -> None:
    """A stop that is for the root alone goes down as well."""
    inherit = Scope.inherit

    def tell(self: Scope, stop: Stop, _: Bond) -> None:
        inherit(self, stop, "step")

    patch.setattr(Scope, "inherit", tell)


def the_state_of_children_is_not_kept(patch: Patch) -> None:
    """The checkpoint says that a call goes on, and not where."""

    def forget(_: Place) -> tuple[Checkpoint, ...]:
        return ()

    patch.setattr(Place, "checkpoints", forget)


def a_resumed_child_starts_from_scratch(patch: Patch) -> None:
    """What is kept of it is not looked at."""
    enter = Place.enter

    def anew(self: Place, run: Run, child: Record) -> None:
        enter(self, run, child)

    patch.setattr(Place, "enter", anew)


def harm_is_not_noted(patch: Patch) -> None:
    """An agent whose tools have begun is asked again as if nothing had."""
    patch.setattr(Record, "harm", nothing)


def a_childs_message_is_in_its_parents_history(patch: Patch) -> None:
    """The events of a child are taken for the own ones."""
    effects = cast("dict[type[Event], object]", fold._OF_A_CHILD)
    patch.setitem(effects, MessageAdded, fold._EFFECTS[MessageAdded])


def what_children_spend_is_not_counted(patch: Patch) -> None:
    """Their tokens are nobody's."""
    patch.delitem(fold._OF_A_CHILD, ModelEnded)


def a_steer_is_heard_twice(patch: Patch) -> None:
    """It is taken out, and stays."""
    take = Steering.take

    def again(self: Steering, *, at_end: bool) -> list[Said]:
        said = take(self, at_end=at_end)
        return [*said, *said]

    patch.setattr(Steering, "take", again)


def a_steer_is_forgotten(patch: Patch) -> None:
    """What nobody has heard is not told."""
    patch.setattr(Steering, "close", nothing)


def the_end_of_a_child_is_told_above(patch: Patch) -> None:
    """The log of a parent has terminal items in its middle."""
    add = Record.add

    def tell(self: Record, item: Item) -> None:
        live = self.state.ended is None
        add(self, item)
        if live and isinstance(item, RunEnded) and self.place is not None:
            self.place.take(self, item)

    patch.setattr(Record, "add", tell)


def an_answer_is_forgotten(patch: Patch) -> None:
    """What a human has said does not come to the run that had asked."""
    patch.setitem(cast("dict[type[Event], object]", fold._EFFECTS), Answered, nothing)


def what_a_child_abandons_is_not_told(patch: Patch) -> None:
    """Its tool still runs, and the run above says nothing of it."""

    def keep(self: Record, work: Abandoned) -> None:
        self.abandoned.append(work)

    patch.setattr(Record, "abandon", keep)


FAULTS: list[tuple[Callable[[Patch], None], str, str]] = [
    (a_child_is_not_told_of_now, "a child", "a stop that is for the child inner reaches it"),
    (a_child_is_not_told_of_points, "a child", "a stop that is for the child inner reaches it"),
    (a_child_is_told_of_all, "a child", "a stop that is for a run alone leaves its child inner undisturbed"),
    (the_state_of_children_is_not_kept, "a child", "what must not be repeated is not: work_inner began 2"),
    (
        a_resumed_child_starts_from_scratch,
        "three deep",
        "what must not be repeated is not: work_leaf began 2",
    ),
    (harm_is_not_noted, "a child", "what began inside inner must not begin twice"),
    (harm_is_not_noted, "a child", "what must not be repeated is not: work_inner began 2"),
    (a_childs_message_is_in_its_parents_history, "a child", "in that order, and no others"),
    (what_children_spend_is_not_counted, "a child", "the usage of a tree adds up"),
    (a_steer_is_heard_twice, "a child", "what is said is heard once: the receipt says True, it was heard 2"),
    (a_steer_is_forgotten, "a child", "every receipt of a steer resolves"),
    (the_end_of_a_child_is_told_above, "a child", "one terminal event: there are 2"),
    (an_answer_is_forgotten, "a question in a child", "a run whose questions are answered comes to its end"),
    (what_a_child_abandons_is_not_told, "a child that clings", "nothing is left running"),
]


@pytest.mark.parametrize(("fault", "name", "words"), FAULTS, ids=lambda part: getattr(part, "__name__", ""))
def test_a_fault_seeded_in_trees_is_caught(
    fault: Callable[[Patch], None], name: str, words: str, monkeypatch: Patch
) -> None:
    """At least one violation, and one that says what is wrong."""
    scenario = next(one for one in TREES if one.name == name)
    fault(monkeypatch)
    found = explore(scenario, modes=TREE_MODES, each=3, most=15)
    assert any(words in one.broken for one in found.violations), found.report()
