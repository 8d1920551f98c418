"""What a script can ask of a request, whichever API it came by."""

import pytest

from andon.testing.provider.request import Object, Request

TEXT: Object = {"type": "text", "text": "one"}


def request(**body: object) -> Request:
    """Give a request with that body."""
    return Request(n=1, api="openai-chat", headers={}, body=body)


@pytest.mark.parametrize(
    "asked",
    [
        request(input="one"),
        request(input=[{"role": "user", "content": "one"}]),
        request(messages=[{"role": "user", "content": "zero"}, {"role": "user", "content": "one"}]),
        request(messages=[{"role": "user", "content": [TEXT]}, {"role": "assistant", "content": "two"}]),
        request(
            messages=[{"role": "user", "content": [TEXT]}, {"role": "user", "content": [{"type": "image"}]}]
        ),
    ],
)
def test_the_prompt_is_the_users_last_text(asked: Request) -> None:
    """Items without text are passed over."""
    assert asked.prompt == "one"


def test_results_are_those_since_the_model_spoke() -> None:
    """Earlier rounds are over."""
    old: Object = {"role": "tool", "tool_call_id": "c0", "content": "old"}
    spoke: Object = {"role": "assistant", "content": "a"}
    chat = request(messages=[old, spoke, {"role": "tool", "tool_call_id": "c1", "content": "one"}])
    items = request(
        input=[
            {"type": "function_call_output", "call_id": "c0", "output": "old"},
            {"type": "function_call"},
            {"type": "function_call_output", "call_id": "c1", "output": "one"},
            {"role": "user", "content": "and?"},
        ]
    )
    blocks = request(
        messages=[
            spoke,
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [TEXT]}]},
        ]
    )

    assert chat.results == items.results == blocks.results == {"c1": "one"}


def test_a_strange_body_has_no_answers() -> None:
    """Without strictness a script may meet anything."""
    bodies: list[Object] = [{}, {"messages": 3, "tools": 3}, {"input": [3], "tools": [3, {"type": "web"}]}]
    for body in bodies:
        asked = request(**body)
        assert (asked.prompt, asked.results, asked.tools, asked.model, asked.stream) == (
            "",
            {},
            (),
            "",
            False,
        )
