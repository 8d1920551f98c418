"""Fate: what became of a command, as far back as anybody may still ask."""

from msgspec import Struct

from andon.core.stop import StopReport

REMEMBERED = 1_000


class Fate(Struct, frozen=True, kw_only=True, gc=False):
    """What became of a command: the run that it concerns, if any, or why it had no effect."""

    run_id: str | None = None
    problem: str | None = None
    report: StopReport | None = None


class Fates(dict[str, Fate]):
    """The fates of the last commands, by their ids."""

    def tell(self, command_id: str, fate: Fate) -> None:
        """Say what became of a command, or what has become of it since."""
        self[command_id] = fate
        if len(self) > REMEMBERED:
            del self[next(iter(self))]
