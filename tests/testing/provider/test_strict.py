"""OpenAI's rules for a conversation, one by one."""

import pytest

from andon.testing.provider.request import Object
from andon.testing.provider.strict import chat_problems, responses_problems

NOTHING: list[object] = []
USER: Object = {"role": "user", "content": "hi"}
CALLS: Object = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
        {"id": "c2", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}},
    ],
}
RESULT_1: Object = {"role": "tool", "tool_call_id": "c1", "content": "one"}
RESULT_2: Object = {"role": "tool", "tool_call_id": "c2", "content": "two"}


def calling(call_id: str, name: str = "f", arguments: str = "{}") -> dict[str, object]:
    """Give an assistant message with one call."""
    function = {"name": name, "arguments": arguments}
    return {"role": "assistant", "tool_calls": [{"id": call_id, "type": "function", "function": function}]}


@pytest.mark.parametrize(
    "messages",
    [
        [USER],
        [{"role": "system", "content": "be kind"}, USER, {"role": "assistant", "content": "hello"}, USER],
        [USER, CALLS, RESULT_1, RESULT_2],
        [USER, CALLS, RESULT_2, RESULT_1, USER],
        [USER, calling("c1"), RESULT_1, calling("c2"), RESULT_2],
        [USER, USER, {"role": "assistant", "content": ""}],
        [
            {
                "role": "user",
                "content": [{"type": "text", "text": "hi"}, {"type": "image_url", "image_url": None}],
            }
        ],
    ],
)
def test_chat_takes_a_valid_conversation(messages: list[object]) -> None:
    """No problem is found where the provider finds none."""
    assert chat_problems({"model": "m", "messages": messages}) == []


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        (NOTHING, "empty array"),
        ([{"role": "robot", "content": "hi"}], "'robot'"),
        ([{"role": "user"}], "got null"),
        ([{"role": "user", "content": None}], "got null"),
        ([USER, {"role": "assistant"}], "'content' or 'tool_calls'"),
        ([USER, {"role": "assistant", "content": "a", "tool_calls": NOTHING}], "tool_calls': empty array"),
        ([USER, CALLS], "did not have response messages: c1, c2"),
        ([USER, CALLS, RESULT_1], "did not have response messages: c2"),
        ([USER, CALLS, RESULT_1, USER, RESULT_2], "did not have response messages: c2"),
        ([USER, CALLS, RESULT_1, USER, RESULT_2], "must be a response to a preceeding message"),
        ([USER, RESULT_1], "must be a response to a preceeding message"),
        ([USER, CALLS, RESULT_1, RESULT_2, RESULT_1], "Duplicate tool message"),
        ([USER, CALLS, RESULT_1, RESULT_2, {"role": "tool", "content": "x"}], "'messages.[4].tool_call_id'"),
        ([USER, CALLS, {"role": "tool", "tool_call_id": "c1"}, RESULT_2], "messages.[2].content"),
        ([USER, calling("c1", arguments='{"q": "co'), RESULT_1], "no JSON object"),
        ([USER, calling("c1", arguments="[1]"), RESULT_1], "no JSON object"),
        ([USER, calling("c1", name="no name"), RESULT_1], "Invalid tool name 'no name'"),
        ([USER, {**CALLS, "role": "user", "content": "a"}, RESULT_1, RESULT_2], "only an assistant message"),
        ([{"role": 1, "content": "hi"}], "Expected `str`"),
    ],
)
def test_chat_refuses(messages: list[object], problem: str) -> None:
    """Each of these has been somebody's cancelled conversation."""
    assert any(problem in found for found in chat_problems({"model": "m", "messages": messages}))


def test_chat_wants_each_call_of_a_message_to_have_its_own_id() -> None:
    """A result could not tell which it is for."""
    calls = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}] * 2
    messages = [USER, {"role": "assistant", "tool_calls": calls}, RESULT_1]

    assert chat_problems({"model": "m", "messages": messages}) == ["messages.[1]: duplicate tool_call id: c1"]


def test_the_names_of_tools_are_checked() -> None:
    """In either API."""
    chat = {"model": "m", "messages": [USER], "tools": [{"type": "function", "function": {"name": "a b"}}]}
    responses = {
        "model": "m",
        "input": [USER],
        "tools": [{"type": "function", "name": "a b"}, {"type": "web_search"}],
    }

    assert "Invalid tool name 'a b'" in chat_problems(chat)[0]
    assert len(responses_problems(responses)) == 1


CALL_1: Object = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}"}
CALL_2: Object = {"type": "function_call", "call_id": "c2", "name": "f", "arguments": "{}"}
OUTPUT_1: Object = {"type": "function_call_output", "call_id": "c1", "output": "one"}
OUTPUT_2: Object = {
    "type": "function_call_output",
    "call_id": "c2",
    "output": [{"type": "input_text", "text": "two"}],
}
THOUGHT: Object = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
SAID: Object = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]}


@pytest.mark.parametrize(
    "items",
    [
        "hi",
        [USER],
        [USER, SAID, USER],
        [USER, THOUGHT, SAID],
        [USER, THOUGHT, CALL_1, OUTPUT_1],
        [USER, CALL_1, CALL_2, OUTPUT_2, OUTPUT_1, USER],
        [USER, THOUGHT, {**THOUGHT, "id": "rs_2"}, SAID],
        [{"type": "item_reference", "id": "msg_1"}, USER],
        [USER, {"role": "assistant", "content": "plain"}],
    ],
)
def test_responses_takes_a_valid_conversation(items: object) -> None:
    """No problem is found where the provider finds none."""
    assert responses_problems({"model": "m", "input": items}) == []


@pytest.mark.parametrize(
    ("items", "problem"),
    [
        (NOTHING, "Missing required parameter: 'input'"),
        ([USER, CALL_1], "No tool output found for function call c1."),
        ([USER, CALL_1, CALL_2, OUTPUT_1, USER], "No tool output found for function call c2."),
        ([USER, OUTPUT_1], "No tool call found for function call output with call_id c1."),
        ([USER, OUTPUT_1, CALL_1], "No tool call found"),
        ([USER, CALL_1, OUTPUT_1, OUTPUT_1], "Duplicate output for function call: c1"),
        ([USER, CALL_2, OUTPUT_2, CALL_2], "Duplicate function call: c2"),
        ([USER, CALL_1, OUTPUT_1, {**SAID, "id": "fc_1"}], "Duplicate item found with id: fc_1"),
        ([USER, THOUGHT], "'rs_1' of type 'reasoning' was provided without its required following item"),
        ([USER, THOUGHT, USER], "required following item"),
        ([USER, CALL_1, THOUGHT, OUTPUT_1], "required following item"),
        ([USER, {"type": "reasoning", "summary": NOTHING}, SAID], "'input[1].id'"),
        ([{"role": "robot", "content": "hi"}], "'robot'"),
        ([{"role": "user"}], "'input[0].content'"),
        ([{"role": "user", "content": [{"type": "output_text", "text": "a"}]}], "'output_text'"),
        ([{"role": "assistant", "content": [{"type": "input_text", "text": "a"}]}], "'input_text'"),
        ([USER, {"type": "function_call", "call_id": "c1"}, OUTPUT_1], "'input[1].call_id'"),
        ([USER, CALL_1, {"type": "function_call_output", "call_id": "c1"}], "'input[2].call_id' or 'output'"),
        ([USER, {**CALL_1, "arguments": '{"a'}, OUTPUT_1], "no JSON object"),
        (3, "Expected `str | array`"),
    ],
)
def test_responses_refuses(items: object, problem: str) -> None:
    """Each of these has been somebody's cancelled conversation."""
    assert any(problem in found for found in responses_problems({"model": "m", "input": items}))


def test_a_stored_conversation_may_hold_the_call() -> None:
    """The output's call is in the response that this one goes on from."""
    body = {"model": "m", "input": [OUTPUT_1], "previous_response_id": "resp_1"}

    assert responses_problems(body) == []
