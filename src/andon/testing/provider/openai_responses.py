"""OpenAI's Responses, as they are on the wire."""

import time
from collections.abc import Callable

from andon.testing.provider.dialect import event
from andon.testing.provider.request import Object, Request
from andon.testing.provider.script import Fail, Reasoning, Text, ToolCall, Usage

_CODES = {429: "rate_limit_exceeded"}


class ResponseEncoder:
    """Writes the events of one response, item by item, or the one response."""

    def __init__(self, request: Request, usage: Usage) -> None:
        self._n, self._model, self._usage = request.n, request.model, usage
        self._created = int(time.time())
        self._said = 0
        self._items: list[Object] = []
        self._pieces: list[str] = []
        self._signature: str | None = None
        self._finish: Callable[[], bytes] | None = None

    def opening(self) -> bytes:
        """Say `response.created` and `response.in_progress`."""
        started = self._response("in_progress")
        return self._event("response.created", response=started) + self._event(
            "response.in_progress", response=started
        )

    def text(self, part: Text) -> bytes:
        """Say an `output_text.delta`, in the open message or a new one."""
        before = b"" if self._finish == self._finish_text else self._start_text()
        self._pieces.append(part.text)
        delta = self._part("response.output_text.delta", content_index=0, delta=part.text, logprobs=[])
        return before + delta

    def reasoning(self, part: Reasoning) -> bytes:
        """Say a `reasoning_summary_text.delta`; a signature becomes the item's encrypted content."""
        before = b"" if self._finish == self._finish_reasoning else self._start_reasoning()
        self._pieces.append(part.text)
        said = self._part("response.reasoning_summary_text.delta", summary_index=0, delta=part.text)
        if part.signature is None:
            return before + said
        self._signature = part.signature
        return before + said + self._leave()

    def call(self, part: ToolCall) -> bytes:
        """Add a `function_call` item."""
        call_id = part.id or f"call_{self._n}_{len(self._items)}"
        return self._enter(
            {"type": "function_call", "call_id": call_id, "name": part.name, "arguments": ""},
            "fc",
            self._finish_call,
        )

    def arguments(self, piece: str) -> bytes:
        """Say a `function_call_arguments.delta`."""
        self._pieces.append(piece)
        return self._part("response.function_call_arguments.delta", delta=piece)

    def called(self) -> bytes:
        """Finish the item."""
        return self._leave()

    def closing(self) -> bytes:
        """Say `response.completed`, with the whole response."""
        return self._leave() + self._event("response.completed", response=self._response("completed"))

    def failing(self, fail: Fail) -> bytes:
        """Say an `error` event, and that the response failed."""
        code = fail.type or _CODES.get(fail.status, "server_error")
        said = self._event("error", code=code, message=fail.message, param=None)
        failed = self._response("failed") | {"error": {"code": code, "message": fail.message}}
        return said + self._event("response.failed", response=failed)

    def whole(self) -> Object:
        """Give the response."""
        self._leave()
        return self._response("completed")

    def _start_text(self) -> bytes:
        item: Object = {"type": "message", "role": "assistant", "content": []}
        added = self._enter(item, "msg", self._finish_text)
        return added + self._part("response.content_part.added", content_index=0, part=_output_text(""))

    def _finish_text(self) -> bytes:
        part = _output_text(self._content)
        self._items[-1]["content"] = [part]
        done = self._part("response.output_text.done", content_index=0, text=self._content, logprobs=[])
        return done + self._part("response.content_part.done", content_index=0, part=part)

    def _start_reasoning(self) -> bytes:
        added = self._enter({"type": "reasoning", "summary": []}, "rs", self._finish_reasoning)
        self._signature = None
        part = {"type": "summary_text", "text": ""}
        return added + self._part("response.reasoning_summary_part.added", summary_index=0, part=part)

    def _finish_reasoning(self) -> bytes:
        part = {"type": "summary_text", "text": self._content}
        signature = self._signature or f"encrypted-{self._n}-{len(self._items) - 1}"
        self._items[-1] |= {"summary": [part], "encrypted_content": signature}
        done = self._part("response.reasoning_summary_text.done", summary_index=0, text=self._content)
        return done + self._part("response.reasoning_summary_part.done", summary_index=0, part=part)

    def _finish_call(self) -> bytes:
        self._items[-1]["arguments"] = self._content
        return self._part(
            "response.function_call_arguments.done", arguments=self._content, name=self._items[-1]["name"]
        )

    def _enter(self, item: Object, prefix: str, finish: Callable[[], bytes]) -> bytes:
        """Add an item, after the one before it has been finished."""
        before = self._leave()
        self._pieces, self._finish = [], finish
        # A reasoning item has no status on the wire.
        status: Object = {} if item["type"] == "reasoning" else {"status": "in_progress"}
        self._items.append({"id": f"{prefix}_{self._n}_{len(self._items)}", **item, **status})
        return before + self._item_event("response.output_item.added")

    def _leave(self) -> bytes:
        """Finish the open item, if any."""
        if self._finish is None:
            return b""
        if "status" in self._items[-1]:
            self._items[-1]["status"] = "completed"
        done = self._finish()
        self._finish = None
        return done + self._item_event("response.output_item.done")

    @property
    def _content(self) -> str:
        """What the open item has said so far."""
        return "".join(self._pieces)

    def _item_event(self, kind: str) -> bytes:
        return self._event(kind, output_index=len(self._items) - 1, item=self._items[-1])

    def _part(self, kind: str, **more: object) -> bytes:
        item_id = self._items[-1]["id"]
        return self._event(kind, item_id=item_id, output_index=len(self._items) - 1, **more)

    def _event(self, kind: str, **more: object) -> bytes:
        said, self._said = self._said, self._said + 1
        return event({"type": kind, "sequence_number": said, **more}, kind)

    def _response(self, status: str) -> Object:
        return {
            "id": f"resp_{self._n}",
            "object": "response",
            "created_at": self._created,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "model": self._model,
            "output": self._items if status == "completed" else [],
            "parallel_tool_calls": True,
            "temperature": 1.0,
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
            "usage": self._cost() if status == "completed" else None,
        }

    def _cost(self) -> Object:
        paid = self._usage
        return {
            "input_tokens": paid.input,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": paid.output,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": paid.input + paid.output,
        }


def _output_text(text: str) -> Object:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
