"""Shape: what bodies look like, and how answers are written."""

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from fastapi import Path, Response
from msgspec import Struct
from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field

from andon.core.command import OnBusy
from andon.core.limits import Limits
from andon.core.messages import Image, Text
from andon.core.outcome import Interrupt
from andon.core.row import Row
from andon.core.steer import When
from andon.core.stop import MAX_ID, MAX_REASON, Point, Stop, StopReport
from andon.runtime.prompt import Prompt
from andon.serve.problem import MEDIA

LiveState = Literal["queued", "running", "stopping", "quarantined"]
PATTERN = r"^[A-Za-z0-9_.@+=~-]{1,128}$"
LONGEST_WAIT = 60.0
LONGEST_RUN = 600.0
DEFAULT_WAIT = 10.0
MOST_PARTS = 1_000

POINTS = {"stream": Point.STREAM, "model": Point.MODEL, "tools": Point.TOOLS}

Id = Annotated[str, Path(pattern=PATTERN)]
GivenId = Annotated[str, Field(pattern=PATTERN)]
OnDisconnect = Literal["cancel", "continue"]
Grace = Annotated[float, Field(ge=0, le=3_600, allow_inf_nan=False)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Wait = Annotated[float, Field(ge=0, le=LONGEST_WAIT, allow_inf_nan=False)]


def _writable(value: object) -> object:
    """Refuse halves of characters, which JSON can say and nobody can write down."""
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError as error:
        raise ValueError(f"this cannot be written down: {error}") from error
    return value


JsonObject = Annotated[dict[str, object], AfterValidator(_writable)]


class Body(BaseModel):
    """What is sent: nothing that is not known, and nothing that has to be guessed."""

    model_config = ConfigDict(extra="forbid", strict=True)


Words = Annotated[str, Field(min_length=1, pattern=r"\S")]  # providers refuse empty messages


class TextPart(Body):
    """Words."""

    type: Literal["text"]
    text: Words


class ImagePart(Body):
    """A picture, by its address."""

    type: Literal["image"]
    url: str
    media_type: str = "image/png"


Input = (
    Words
    | Annotated[
        list[Annotated[TextPart | ImagePart, Field(discriminator="type")]],
        Field(min_length=1, max_length=MOST_PARTS),
    ]
)


def prompt_of(given: Input) -> Prompt:
    """Make a prompt of what was sent."""
    if isinstance(given, str):
        return given
    return [
        Text(part.text) if isinstance(part, TextPart) else Image(url=part.url, media_type=part.media_type)
        for part in given
    ]


Count = Annotated[int, Field(ge=0)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Bounds(Body):
    """What a run may spend; what is not said is as the agent has it."""

    model_calls: Count | None = None
    tool_calls: Count | None = None
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cost: Amount | None = None
    seconds: Seconds | None = None
    repeated_failures: Annotated[int, Field(ge=1)] | None = None

    def limits(self) -> Limits:
        """Give them as a value."""
        return Limits(**self.model_dump())


class Saying(Body):
    """Something to say to a session, which becomes a run."""

    input: Input
    on_busy: OnBusy = "enqueue"
    limits: Bounds | None = None
    idempotency_key: Annotated[str, Field(min_length=1, max_length=MAX_ID)] | None = None


class Running(Saying):
    """The same, how long to wait for its end, and what becomes of it if the client goes away meanwhile."""

    wait: Annotated[float, Field(ge=0, le=LONGEST_RUN, allow_inf_nan=False)] = 0.0
    on_disconnect: OnDisconnect = "continue"
    disconnect_grace: Grace | None = None


class HowToStop(Body):
    """How to stop, and how long to wait for the end."""

    at: list[Literal["stream", "model", "tools"]] | None = None
    grace: Seconds | None = None
    recursive: bool = False
    reason: Annotated[str, Field(max_length=MAX_REASON)] | None = None
    wait: Wait = DEFAULT_WAIT

    def stop(self) -> Stop:
        """Say how to stop: without a place, now."""
        points = Point(0)
        for place in self.at or ():
            points |= POINTS[place]
        if not points:
            return Stop.now(recursive=self.recursive)
        return Stop.at(points, grace=self.grace, recursive=self.recursive)


class Cancelling(HowToStop):
    """How to cancel, and what: without a run, whatever is live."""

    run_id: Annotated[GivenId | None, Field(validation_alias=AliasChoices("run_id", "runId"))] = None
    queued: bool = False


class CancellingRun(HowToStop):
    """How to cancel a run."""


class CancellingMany(HowToStop):
    """How to cancel runs, and which: those that are live and of which all that is said here is so."""

    app: GivenId | None = None
    user: GivenId | None = None
    session: GivenId | None = None
    state: Annotated[list[LiveState], Field(min_length=1)] | None = None


class CancellingApp(HowToStop):
    """How to cancel all runs of an app, or those of one user of it."""

    user: GivenId | None = None


class Stopping(HowToStop):
    """Stop a session; the live run goes on unless it is said how to stop that, too."""

    now: bool = False

    def asked(self) -> Stop | None:
        """Say how to stop the live run, if it is to be stopped."""
        return self.stop() if self.at or self.now else None


class Pausing(Body):
    """Stop the live run so that it can go on, and hold the session."""

    grace: Seconds | None = None
    reason: Annotated[str, Field(max_length=MAX_REASON)] | None = None
    wait: Wait = DEFAULT_WAIT


class Steering(Body):
    """Something to say to the live run."""

    input: Input
    when: When = "next"
    run_id: GivenId | None = None
    steer_id: Annotated[str, Field(min_length=1, max_length=MAX_ID)] | None = None


class SteeringRun(Body):
    """Something to say to a run."""

    input: Input
    when: When = "next"
    steer_id: Annotated[str, Field(min_length=1, max_length=MAX_ID)] | None = None


class Creating(Body):
    """A session to begin; without an id it is given one."""

    session_id: Annotated[
        GivenId | None, Field(validation_alias=AliasChoices("session_id", "sessionId", "id"))
    ] = None
    state: JsonObject | None = None


class Answering(Body):
    """Answers to the questions of a run, by the ids of these."""

    answers: JsonObject


# Answers


class Taken(Struct, frozen=True):
    """What was asked stands; `run_id` is the run that it concerns, if any."""

    result: Literal["ACCEPTED"] = "ACCEPTED"
    run_id: str | None = None


class Ended(Row, frozen=True, kw_only=True, omit_defaults=True):
    """A run that has ended, with the last words of its agent."""

    text: str = ""


class Page(Struct, frozen=True):
    """Some of the runs, the newest first, and where the others begin, if there are any."""

    runs: Sequence[Row]
    next: str | None = None


class Session(Struct, frozen=True, kw_only=True, rename="camel"):
    """A session as ADK has it, and what else there is to say of it."""

    id: str
    app_name: str
    user_id: str
    state: dict[str, object]
    events: Sequence[object] = ()
    last_update_time: float = 0.0
    live_run_id: str | None = None
    queued_run_ids: Sequence[str] = ()
    waiting_run_id: str | None = None
    interrupts: Sequence[Interrupt] = ()
    held: bool = False
    closed: bool = False
    quarantined: str = ""
    n: int = 0


class Health(Struct, frozen=True):
    """It lives, or it can work."""

    status: Literal["ok"] = "ok"


SHAPES: tuple[type[Struct], ...] = (Row, Ended, StopReport, Taken, Page, Session, Health)


def wire(value: object, status: int = 200) -> Response:
    """Answer with a value as JSON."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def says(name: str, words: str) -> dict[str, object]:
    """Describe an answer whose shape has this name."""
    schema = {"$ref": f"#/components/schemas/{name}"}
    return {"description": words, "content": {"application/json": {"schema": schema}}}


_PROBLEM: dict[str, object] = {
    "description": "What is wrong, with what, and what to do now.",
    "content": {MEDIA: {"schema": {"$ref": "#/components/schemas/Problem"}}},
}
PROBLEMS: dict[int | str, dict[str, object]] = {"4XX": _PROBLEM, "5XX": _PROBLEM}


def reported(report: StopReport | None) -> Response:
    """Answer a request to stop: with the report, or that it stands and has not ended yet."""
    return wire(Taken(), 202) if report is None else wire(report)


TAKEN: dict[int | str, dict[str, object]] = {200: says("Taken", "It has its effect.")}
STOPPED: dict[int | str, dict[str, object]] = {
    200: says("StopReport", "It has really ended, or there was nothing to end."),
    202: says("Taken", "It stands, and the run has not ended yet."),
}
