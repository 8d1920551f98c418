"""Anthropic's Messages, as they are on the wire."""

from msgspec import DecodeError, json

from andon.testing.provider.dialect import event
from andon.testing.provider.request import Object, Request
from andon.testing.provider.script import Fail, Reasoning, Text, ToolCall, Usage

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def error(fail: Fail) -> Object:
    """Write a failure as Anthropic does."""
    kind = fail.type or _TYPES.get(fail.status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": fail.message}}


class MessageEncoder:
    """Writes the events of one message, block by block, or the one message."""

    def __init__(self, request: Request, usage: Usage) -> None:
        self._n, self._model, self._usage = request.n, request.model, usage
        self._blocks: list[Object] = []
        self._open = False
        self._pinged = False
        self._pieces: list[str] = []

    def opening(self) -> bytes:
        """Say `message_start`, with the input's tokens."""
        message = self._message(content=[], stop_reason=None, output=1)
        return _event({"type": "message_start", "message": message})

    def text(self, part: Text) -> bytes:
        """Say a `text_delta`, in the open text block or a new one."""
        before = self._enter({"type": "text", "text": ""})
        self._pieces.append(part.text)
        return before + self._delta({"type": "text_delta", "text": part.text})

    def reasoning(self, part: Reasoning) -> bytes:
        """Say a `thinking_delta`, and its signature if it has one."""
        before = self._enter({"type": "thinking", "thinking": "", "signature": ""})
        self._pieces.append(part.text)
        said = before + self._delta({"type": "thinking_delta", "thinking": part.text})
        return said if part.signature is None else said + self._sign(part.signature) + self._leave()

    def call(self, part: ToolCall) -> bytes:
        """Open a `tool_use` block."""
        before = self._leave()
        call_id = part.id or f"toolu_{self._n}_{len(self._blocks)}"
        return before + self._enter({"type": "tool_use", "id": call_id, "name": part.name, "input": {}})

    def arguments(self, piece: str) -> bytes:
        """Say an `input_json_delta`."""
        self._pieces.append(piece)
        return self._delta({"type": "input_json_delta", "partial_json": piece})

    def called(self) -> bytes:
        """Close the `tool_use` block."""
        return self._leave()

    def closing(self) -> bytes:
        """Say the stop reason, the output's tokens and `message_stop`."""
        delta = {"stop_reason": self._stop_reason(), "stop_sequence": None}
        end: Object = {
            "type": "message_delta",
            "delta": delta,
            "usage": {"output_tokens": self._usage.output},
        }
        return self._leave() + _event(end) + _event({"type": "message_stop"})

    def failing(self, fail: Fail) -> bytes:
        """Say an `error` event."""
        return _event(error(fail))

    def whole(self) -> Object:
        """Give the message."""
        self._leave()
        return self._message(content=self._blocks, stop_reason=self._stop_reason(), output=self._usage.output)

    def _stop_reason(self) -> str:
        return "tool_use" if any(block["type"] == "tool_use" for block in self._blocks) else "end_turn"

    def _message(self, *, content: list[Object], stop_reason: str | None, output: int) -> Object:
        return {
            "id": f"msg_{self._n}",
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": content,
            "stop_reason": stop_reason,
            "stop_sequence": None,
            "usage": {"input_tokens": self._usage.input, "output_tokens": output},
        }

    def _enter(self, block: Object) -> bytes:
        """Go on in a block of this type, opening one if need be."""
        if self._open and self._blocks[-1]["type"] == block["type"]:
            return b""
        before = self._leave()
        self._blocks.append(dict(block))
        self._open, self._pieces = True, []
        start = _event(
            {"type": "content_block_start", "index": len(self._blocks) - 1, "content_block": block}
        )
        ping = b"" if self._pinged else _event({"type": "ping"})
        self._pinged = True
        return before + start + ping

    def _leave(self) -> bytes:
        """Close the open block, if any; thinking is never left unsigned."""
        if not self._open:
            return b""
        index, block = len(self._blocks) - 1, self._blocks[-1]
        said = "".join(self._pieces)
        match block["type"]:
            case "tool_use":
                block["input"] = _input(said)
            case kind:
                block[str(kind)] = said
        signature = self._sign(f"signature-{self._n}-{index}") if block.get("signature") == "" else b""
        self._open = False
        return signature + _event({"type": "content_block_stop", "index": index})

    def _sign(self, signature: str) -> bytes:
        self._blocks[-1]["signature"] = signature
        return self._delta({"type": "signature_delta", "signature": signature})

    def _delta(self, delta: Object) -> bytes:
        return _event({"type": "content_block_delta", "index": len(self._blocks) - 1, "delta": delta})


def _input(arguments: str) -> object:
    try:
        return json.decode(arguments or "{}")
    except DecodeError:
        # Only the stream can carry arguments that are no JSON; a whole message shows them as they came.
        return arguments


def _event(data: Object) -> bytes:
    return event(data, str(data["type"]))
