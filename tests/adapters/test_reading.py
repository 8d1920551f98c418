"""Answers that the fake provider cannot give, from pydantic-ai's own words for them."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from weakref import ref

import pytest
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError, UnexpectedModelBehavior, UserError
from pydantic_ai.messages import (
    FinishReason,
    ModelResponse,
    ModelResponsePart,
    ModelResponseStreamEvent,
    TextPart,
    ToolCallPart,
)
from pydantic_ai.models import ModelRequestParameters, StreamedResponse

from andon import Call, ModelError, Usage
from andon.adapters.models.failure import failure
from andon.adapters.models.history import History, pack, unpack
from andon.adapters.models.reading import Reading
from andon.core.draft import Chunk
from andon.core.items import CallDelta
from andon.core.messages import Image, Message, Payload


@dataclass
class Spoken(StreamedResponse):
    """An answer made of whole parts."""

    said: Sequence[ModelResponsePart] = ()

    async def _get_event_iterator(self) -> AsyncIterator[ModelResponseStreamEvent]:
        for index, part in enumerate(self.said):
            yield self._parts_manager.handle_part(vendor_part_id=index, part=part)

    @property
    def model_name(self) -> str:
        """Name the model."""
        return "m"

    @property
    def provider_name(self) -> str:
        """Name the provider."""
        return "p"

    @property
    def provider_url(self) -> str:
        """Give its address."""
        return "https://provider.example"

    @property
    def timestamp(self) -> datetime:
        """Say when."""
        return datetime(2026, 1, 1, tzinfo=UTC)


async def chunks_of(
    *parts: ModelResponsePart, provider: str = "google", finish: FinishReason | None = "stop"
) -> list[Chunk]:
    """Read an answer that is all there."""
    chunks: list[Chunk] = []
    stream = Spoken(ModelRequestParameters(), said=parts)
    stream.finish_reason = finish
    await Reading(chunks.append, "google:gemini", provider).read(stream)
    return chunks


async def test_arguments_may_come_as_an_object() -> None:
    """Google's do."""
    chunks = await chunks_of(ToolCallPart("search", {"query": "cord"}, "id_1"))

    assert Call("search", {"query": "cord"}, "id_1") in chunks
    assert CallDelta("search", '{"query":"cord"}', "id_1") in chunks


async def test_no_arguments_are_an_empty_object() -> None:
    """Some providers send nothing for a tool that takes nothing."""
    chunks = await chunks_of(ToolCallPart("now", None, "id_1"), ToolCallPart("now", "", "id_2"))

    assert [chunk for chunk in chunks if isinstance(chunk, Call)] == [
        Call("now", {}, "id_1"),
        Call("now", {}, "id_2"),
    ]


async def test_an_answer_without_an_end_broke_off() -> None:
    """Anthropic always says why it stopped: without that, the connection ended too early."""
    with pytest.raises(ModelError, match="broke off") as raised:
        await chunks_of(TextPart("Once"), provider="anthropic", finish=None)

    assert raised.value.transient


async def test_arguments_cut_by_the_token_limit_are_not_asked_for_again() -> None:
    """The same would happen."""
    with pytest.raises(ModelError, match="search") as raised:
        await chunks_of(ToolCallPart("search", '{"query": "co', "id_1"), finish="length")

    assert not raised.value.transient


@pytest.mark.parametrize(
    ("error", "transient"),
    [
        (UnexpectedModelBehavior("an empty stream"), True),
        (ConnectionResetError(), True),
        (ModelAPIError("m", "server_error: try later"), True),
        (ModelAPIError("m", "invalid_prompt: not this"), False),
        (UserError("this setting is not known"), False),
        (ModelHTTPError(502, "m", None), True),
        (ModelHTTPError(400, "m", {"error": {"message": "too long"}}), False),
        (ModelHTTPError(503, "m", "<html>", headers={"x-should-retry": "false"}), False),
    ],
)
def test_each_failure_says_whether_to_try_again(error: Exception, *, transient: bool) -> None:
    """And names the model."""
    told = failure(error, "google:gemini")

    assert isinstance(told, ModelError)
    assert told.transient is transient
    assert "google:gemini" in str(told)


def test_milliseconds_and_nonsense_of_retry_after() -> None:
    """OpenAI says it in milliseconds too; a date is left to our own back-off."""
    precise = failure(ModelHTTPError(429, "m", headers={"retry-after-ms": "250", "retry-after": "1"}), "m")
    dated = failure(ModelHTTPError(429, "m", headers={"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}), "m")

    assert isinstance(precise, ModelError)
    assert isinstance(dated, ModelError)
    assert precise.retry_after == 0.25
    assert dated.retry_after is None


def test_a_bug_is_no_failure_of_the_provider() -> None:
    """It is given as it is."""
    bug = KeyError("x")

    assert failure(bug, "m") is bug


def test_a_long_message_is_cut() -> None:
    """A provider may answer with a page."""
    told = failure(ModelHTTPError(500, "m", "x" * 100_000), "m")

    assert len(str(told)) < 1000


def test_a_message_is_translated_once() -> None:
    """Another one that looks alike is another one."""
    history = History("openai-chat")
    message, twin = Message.assistant("a"), Message.assistant("a")
    first = history.translate([message], "")[0]

    assert history.translate([message], "")[0] is first
    assert history.translate([twin], "")[0] is not first


def test_a_translation_is_kept_as_long_as_its_message() -> None:
    """And no longer."""
    history = History("openai-chat")
    message = Message.assistant("a")
    kept = ref(history.translate([message], "")[0])
    assert kept() is not None

    del message
    assert kept() is None


def test_a_payload_that_is_no_answer_is_refused() -> None:
    """It was not made here."""
    payload = pack(ModelResponse(parts=[TextPart("a")]), "google")
    wrong = bytes(payload.data).replace(b'"response"', b'"request"').replace(b'"text"', b'"system-prompt"')

    with pytest.raises((TypeError, ValueError)):
        unpack(Payload("google", type(payload.data)(wrong)))


def test_a_user_can_show_a_picture_by_its_address() -> None:
    """It is not fetched by us."""
    image = Image(url="https://pictures.example/cord.png")
    (request,) = History("google").translate([Message.user(image)], "")

    assert "pictures.example/cord.png" in repr(request)


async def test_usage_that_a_provider_never_tells_is_counted_by_length() -> None:
    """So a limit on tokens holds there too; it is marked as the guess that it is."""
    chunks: list[Chunk] = []
    stream = Spoken(ModelRequestParameters(), said=[TextPart("twelve chars")])
    stream.finish_reason = "stop"
    reading = Reading(chunks.append, "openai-chat:local", "openai-chat")
    await reading.read(stream)
    reading.estimate_usage(sent_characters=40)

    assert chunks[-1] == Usage(input_tokens=10, output_tokens=3, estimated=True)
