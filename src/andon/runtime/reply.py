"""Reply: what whoever has asked something of a session is told, from what its journal says."""

from collections.abc import Callable

from andon.core.command import Cancel, Halt, Pause
from andon.core.fate import Fate
from andon.core.session import SessionState
from andon.core.stop import StopReport, StopResult
from andon.errors import SessionError


def effect_of(fate: Fate) -> Fate:
    """Give what became of a command; `conflict` if it had no effect."""
    if fate.problem is not None:
        raise SessionError(fate.problem, "conflict")
    return fate


def report_of(command: Cancel | Halt | Pause) -> Callable[[SessionState], StopReport | None]:
    """Make what looks for the report of a request to stop."""

    def look(state: SessionState) -> StopReport | None:
        fate = state.fates.get(command.id)
        if fate is None or effect_of(fate).report is not None:
            return None if fate is None else fate.report
        row = None if fate.run_id is None else state.ended.get(fate.run_id)
        if row is None:
            return None
        if row.cancelled is not None:
            return row.cancelled
        causes = () if command.stop is None else command.stop.causes
        return StopReport(
            result=StopResult.FINISHED_FIRST,
            accepted=row.ended is not None and row.ended >= command.at,
            causes=causes,
            latency=max(0.0, (row.ended or 0.0) - command.at),
            run_id=row.run_id,
        )

    return look
