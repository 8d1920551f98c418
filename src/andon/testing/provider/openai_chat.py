"""OpenAI's Chat Completions, as they are on the wire."""

import time

from andon.testing.provider.dialect import event
from andon.testing.provider.request import Object, Request, is_object
from andon.testing.provider.script import Fail, Reasoning, Text, ToolCall, Usage

_CODES = {401: "invalid_api_key", 429: "rate_limit_exceeded"}
_TYPES = {429: "requests", 500: "server_error", 503: "server_error"}


def error(fail: Fail) -> Object:
    """Write a failure as OpenAI does."""
    kind = fail.type or _TYPES.get(fail.status, "invalid_request_error")
    return {"error": {"message": fail.message, "type": kind, "param": None, "code": _CODES.get(fail.status)}}


class ChatEncoder:
    """Writes `chat.completion.chunk` events, or the one `chat.completion`."""

    def __init__(self, request: Request, usage: Usage) -> None:
        self._n, self._model, self._usage = request.n, request.model, usage
        options = request.body.get("stream_options")
        self._usage_wanted = is_object(options) and options.get("include_usage") is True
        self._created = int(time.time())
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[tuple[str, str, list[str]]] = []

    def opening(self) -> bytes:
        """Say the role."""
        return self._delta({"role": "assistant", "content": ""})

    def text(self, part: Text) -> bytes:
        """Say a piece of `content`."""
        self._text.append(part.text)
        return self._delta({"content": part.text})

    def reasoning(self, part: Reasoning) -> bytes:
        """Say a piece of `reasoning_content`, as the reasoning servers of this dialect do."""
        self._reasoning.append(part.text)
        return self._delta({"reasoning_content": part.text})

    def call(self, part: ToolCall) -> bytes:
        """Say a call's id and name."""
        call_id = part.id or f"call_{self._n}_{len(self._calls)}"
        self._calls.append((call_id, part.name, []))
        function = {"name": part.name, "arguments": ""}
        return self._call_delta({"id": call_id, "type": "function", "function": function})

    def arguments(self, piece: str) -> bytes:
        """Say a piece of its arguments."""
        self._calls[-1][2].append(piece)
        return self._call_delta({"function": {"arguments": piece}})

    def called(self) -> bytes:
        """Say nothing: the next index or the finish reason ends a call."""
        return b""

    def closing(self) -> bytes:
        """Say the finish reason, the usage if it was asked for, and that this was all."""
        end = event(self._chunk(choices=[self._choice({}, self._finish())]))
        usage = event(self._chunk(choices=[], usage=self._cost())) if self._usage_wanted else b""
        return end + usage + event("[DONE]")

    def failing(self, fail: Fail) -> bytes:
        """Say the error in place of a chunk."""
        return event(error(fail))

    def whole(self) -> Object:
        """Give the completion."""
        message: Object = {"role": "assistant", "content": "".join(self._text) or None, "refusal": None}
        if self._reasoning:
            message["reasoning_content"] = "".join(self._reasoning)
        if self._calls:
            message["tool_calls"] = [
                {"id": call_id, "type": "function", "function": {"name": name, "arguments": "".join(pieces)}}
                for call_id, name, pieces in self._calls
            ]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._finish()}
        return self._chunk(kind="chat.completion", choices=[choice], usage=self._cost())

    def _finish(self) -> str:
        return "tool_calls" if self._calls else "stop"

    def _cost(self) -> Object:
        paid = self._usage
        return {
            "prompt_tokens": paid.input,
            "completion_tokens": paid.output,
            "total_tokens": paid.input + paid.output,
        }

    def _call_delta(self, call: Object) -> bytes:
        return self._delta({"tool_calls": [{"index": len(self._calls) - 1, **call}]})

    def _delta(self, delta: Object) -> bytes:
        # With usage wanted, every chunk but the last carries `usage: null`, as OpenAI's do.
        more: Object = {"usage": None} if self._usage_wanted else {}
        return event(self._chunk(choices=[self._choice(delta, None)]) | more)

    def _choice(self, delta: Object, finish: str | None) -> Object:
        return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}

    def _chunk(self, *, kind: str = "chat.completion.chunk", **more: object) -> Object:
        head: Object = {"id": f"chatcmpl-{self._n}", "object": kind, "created": self._created}
        return {**head, "model": self._model, **more}
