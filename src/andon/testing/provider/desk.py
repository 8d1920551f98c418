"""The front desk: turns a request away as its provider would, or has it answered by the script."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from msgspec import DecodeError, Struct, json
from msgspec.structs import replace

from andon.testing.provider import anthropic, openai_chat
from andon.testing.provider.anthropic import MessageEncoder
from andon.testing.provider.dialect import Dialect
from andon.testing.provider.log import Exchange, Log
from andon.testing.provider.openai_chat import ChatEncoder
from andon.testing.provider.openai_responses import ResponseEncoder
from andon.testing.provider.play import Head, Step, play, refuse
from andon.testing.provider.request import Object, Request
from andon.testing.provider.script import Fail, Part, Reply, Text
from andon.testing.provider.strict import chat_problems, responses_problems
from andon.testing.provider.strict_anthropic import anthropic_problems
from andon.testing.provider.wire import RawRequest

Script: TypeAlias = Callable[[Request], Reply | Iterable[Part]]

_OPENAI = Dialect(
    api="openai-chat",
    path="/v1/chat/completions",
    auth=("authorization",),
    request_id="x-request-id",
    encoder=ChatEncoder,
    error=openai_chat.error,
    problems=chat_problems,
)
_RESPONSES = replace(
    _OPENAI,
    api="openai-responses",
    path="/v1/responses",
    encoder=ResponseEncoder,
    problems=responses_problems,
)
_ANTHROPIC = Dialect(
    api="anthropic",
    path="/v1/messages",
    auth=("x-api-key", "authorization"),
    request_id="request-id",
    encoder=MessageEncoder,
    error=anthropic.error,
    problems=anthropic_problems,
)
_SECRETS = {*_OPENAI.auth, *_ANTHROPIC.auth}
_DIALECTS = {dialect.path: dialect for dialect in (_OPENAI, _RESPONSES, _ANTHROPIC)}


class Answer(Struct, frozen=True):
    """The steps that answer an exchange."""

    n: int
    steps: Iterator[Step]


class Desk:
    """Takes requests in, one by one, on the provider's thread."""

    def __init__(self, log: Log, *, strict: bool) -> None:
        self.log = log
        self.replies: deque[Reply] = deque()
        self.script: Script = _echo
        self.errors: list[Exception] = []
        self._strict = strict

    def receive(self, raw: RawRequest, connection: int) -> Answer:
        """Write the request down and decide how to answer it."""
        dialect = _DIALECTS.get(raw.path)
        body = _parse(raw.body)
        draft = Exchange(
            n=0,
            connection=connection,
            api=dialect.api if dialect else None,
            path=raw.path,
            headers={name: "(not kept)" if name in _SECRETS else raw.headers[name] for name in raw.headers},
            body=body,
            received_at=0.0,
        )
        n = self.log.begin(draft)
        if dialect is None:
            return Answer(n, refuse(Fail(404, f"Invalid URL ({raw.method} {raw.path})"), _OPENAI))
        fail = self._refusal(raw, body, dialect)
        if fail is not None or body is None:
            return Answer(n, _numbered(n, dialect, refuse(fail or _NO_JSON, dialect)))
        request = Request(n=n, api=dialect.api, headers=raw.headers, body=body)
        return Answer(n, _numbered(n, dialect, play(self._reply(request), request, dialect)))

    def _refusal(self, raw: RawRequest, body: Object | None, dialect: Dialect) -> Fail | None:
        if raw.method != "POST":
            return Fail(405, f"Not allowed: {raw.method} {raw.path}")
        if not any(raw.headers.get(name) for name in dialect.auth):
            return Fail(401, f"No API key: send one as {' or '.join(dialect.auth)}")
        if body is None:
            return _NO_JSON
        problems = dialect.problems(body, raw.headers) if self._strict else []
        return Fail(400, "\n".join(problems)) if problems else None

    def _reply(self, request: Request) -> Reply:
        if self.replies:
            return self.replies.popleft()
        try:
            said = self.script(request)
            return said if isinstance(said, Reply) else Reply(tuple(said))
        except Exception as error:  # noqa: BLE001 - the script is the test's: its error is told at once and raised at the end
            self.errors.append(error)
            return Reply((Fail(500, f"the script raised {error!r}"),))


_NO_JSON = Fail(400, "We could not parse the JSON body of your request: it has to be a JSON object.")


def _echo(request: Request) -> Reply:
    return Reply((Text(request.prompt or "Hello"),))


def _parse(body: bytes) -> Object | None:
    try:
        return json.decode(body, type=Object)
    except (DecodeError, UnicodeDecodeError):
        return None


def _numbered(n: int, dialect: Dialect, steps: Iterator[Step]) -> Iterator[Step]:
    """Send the request's id along, as every provider does."""
    for step in steps:
        if isinstance(step, Head):
            yield replace(step, headers={dialect.request_id: f"req_{n}", **step.headers})
        else:
            yield step
