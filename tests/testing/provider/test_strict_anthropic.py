"""Anthropic's rules for a conversation, one by one."""

import pytest

from andon.testing.provider.request import Object
from andon.testing.provider.strict_anthropic import anthropic_problems

USER: Object = {"role": "user", "content": "hi"}
TEXT: Object = {"type": "text", "text": "a"}
USE_1: Object = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
USE_2: Object = {"type": "tool_use", "id": "t2", "name": "f", "input": {"a": 1}}
RESULT_1: Object = {"type": "tool_result", "tool_use_id": "t1", "content": "one"}
RESULT_2: Object = {"type": "tool_result", "tool_use_id": "t2", "content": [TEXT]}
THOUGHT: Object = {"type": "thinking", "thinking": "hm", "signature": "s"}


def said(*blocks: object) -> dict[str, object]:
    """Give a message of the assistant."""
    return {"role": "assistant", "content": list(blocks)}


def told(*blocks: object) -> dict[str, object]:
    """Give a message of the user."""
    return {"role": "user", "content": list(blocks)}


def problems(*messages: object, **settings: object) -> list[str]:
    """Check a conversation."""
    return anthropic_problems({"model": "m", "max_tokens": 9, "messages": list(messages), **settings})


@pytest.mark.parametrize(
    "messages",
    [
        [USER],
        [USER, said(TEXT), USER],
        [USER, USER, said(TEXT), said(TEXT), USER],
        [USER, said(TEXT, USE_1), told(RESULT_1)],
        [USER, said(THOUGHT, USE_1, USE_2), told(RESULT_2, RESULT_1, TEXT)],
        [USER, said(USE_1), told(RESULT_1), said(USE_2), told(RESULT_2), said(TEXT)],
        [USER, said()],
        [USER, {"role": "assistant", "content": "The answer is"}],
        [told({"type": "image", "source": None})],
    ],
)
def test_a_valid_conversation_is_taken(messages: list[object]) -> None:
    """No problem is found where the provider finds none."""
    assert problems(*messages) == []


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([], "at least one message is required"),
        ([said(TEXT), USER], 'first message must use the "user" role'),
        ([USER, {"role": "tool", "content": "x"}], "messages.1.role"),
        ([told(), said(TEXT)], "messages.0: all messages must have non-empty content"),
        ([USER, said(), USER], "messages.1: all messages must have non-empty content"),
        ([{"role": "user", "content": ""}], "must have non-empty content"),
        ([told({"type": "text", "text": ""})], "text content blocks must be non-empty"),
        ([told({"type": "text", "text": " \n"})], "must contain non-whitespace text"),
        ([USER, said({"type": "text", "text": "The answer is "})], "cannot end with trailing whitespace"),
        ([USER, {"role": "assistant", "content": "so\n"}], "cannot end with trailing whitespace"),
        ([USER, said(USE_1)], "without `tool_result` blocks immediately after: t1."),
        ([USER, said(USE_1), USER], "messages.1: `tool_use` ids were found without"),
        ([USER, said(USE_1, USE_2), told(RESULT_1)], "immediately after: t2."),
        ([USER, said(USE_1, USE_2), told(RESULT_1), told(RESULT_2)], "immediately after: t2."),
        ([USER, said(USE_1), told(TEXT, RESULT_1)], "immediately after: t1."),
        ([USER, said(USE_1, USE_2), told(RESULT_1, TEXT, RESULT_2)], "must come first"),
        ([told(RESULT_1)], "unexpected `tool_use_id` found in `tool_result` blocks: t1."),
        ([USER, said(USE_1), told(RESULT_1, RESULT_2)], "unexpected `tool_use_id`"),
        ([USER, said(USE_1), told(RESULT_1, RESULT_1)], "Found multiple `tool_result` blocks with id: t1"),
        ([USER, said(USE_1), told(RESULT_1), said(USE_1), told(RESULT_1)], "ids must be unique"),
        ([USER, said(USE_1), told({**RESULT_1, "content": [{"type": "text", "text": ""}]})], "non-empty"),
        ([USER, said(USE_1, RESULT_1)], "can only be in `user` messages"),
        ([told(USE_1), told(RESULT_1)], "can only be in `assistant` messages"),
        (
            [USER, said({**USE_1, "name": "a b"}), told(RESULT_1)],
            "tool_use.name: String should match pattern",
        ),
        (
            [USER, said({"type": "tool_use", "id": "t1", "name": "f"}), told(RESULT_1)],
            "`id` and `input` are required",
        ),
        ([USER, said({**USE_1, "input": '{"a'}), told(RESULT_1)], "Expected `object | null`, got `str`"),
        ([USER, said({"type": "thinking", "thinking": "hm"}, TEXT)], "thinking.signature: Field required"),
        ([USER, said({"type": "thinking", "signature": "s"}, TEXT)], "thinking.thinking: Field required"),
        ([USER, said({"type": "redacted_thinking"}, TEXT)], "redacted_thinking.data: Field required"),
        ([USER, said(TEXT, THOUGHT), USER], "cannot be `thinking`"),
        ([{"role": "user"}], "missing required field `content`"),
    ],
)
def test_a_conversation_is_refused(messages: list[object], problem: str) -> None:
    """Each of these has been somebody's cancelled conversation."""
    assert any(problem in found for found in problems(*messages))


def test_the_settings_are_checked() -> None:
    """The number of tokens is required, and tools have names of a pattern."""
    assert "max_tokens" in anthropic_problems({"model": "m", "messages": [USER]})[0]
    assert "max_tokens" in problems(USER, max_tokens=0)[0]
    assert "tools.0.custom.name" in problems(USER, tools=[{"name": "a b"}])[0]
    assert problems(USER, tools=[{"name": "a-b"}]) == []
    assert anthropic_problems({}, {}) == ["anthropic-version: header is required"]


def test_thinking_wants_no_prefill_and_its_own_first() -> None:
    """With thinking on, the turn whose tools are answered begins with what was thought."""
    enabled = {"type": "enabled", "budget_tokens": 1024}

    assert "prefilled" in problems(USER, said(TEXT), thinking=enabled)[0]
    assert "found `tool_use`" in problems(USER, said(USE_1), told(RESULT_1), thinking=enabled)[0]
    assert problems(USER, said(THOUGHT, USE_1), told(RESULT_1), thinking=enabled) == []
    assert problems(USER, said(USE_1), told(RESULT_1), thinking={"type": "adaptive"}) == []
    assert problems(USER, said(TEXT), thinking={"type": "disabled"}) == []
