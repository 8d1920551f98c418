"""Models: provider strings ("anthropic:NAME", "openai-chat:NAME" …) become models, through pydantic-ai."""

import inspect
import re
from collections.abc import AsyncGenerator, Callable
from typing import cast

import httpx2
from pydantic_ai.direct import model_request_stream
from pydantic_ai.exceptions import UserError as Misuse
from pydantic_ai.models import Model, ModelRequestParameters, infer_model
from pydantic_ai.providers import Provider, infer_provider, infer_provider_class
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from andon.adapters.models.connection import Sessions, Watch
from andon.adapters.models.failure import failure, without_secrets
from andon.adapters.models.history import History
from andon.adapters.models.price import price
from andon.adapters.models.pump import Pump, Put
from andon.adapters.models.reading import Reading
from andon.core.draft import Chunk
from andon.core.frozen import thawed
from andon.core.limits import Usage
from andon.core.messages import size
from andon.errors import MissingExtraError, UnknownModelError, UserError
from andon.ports import ModelRequest

__all__ = ["ProviderModel", "resolve"]

_EXTRAS = {"anthropic", "google", "openai"}
_SAME = {"openai": "openai-responses"}  # two names of one API
_KEY = re.compile(r"\b[A-Z][A-Z0-9_]*_(?:KEY|TOKEN)\b")


def resolve(name: str) -> "ProviderModel":
    """Give the model of a string such as "anthropic:NAME", "openai:NAME" or "openai-chat:NAME".

    Keys and addresses come from the environment: OPENAI_API_KEY, OPENAI_BASE_URL, ANTHROPIC_API_KEY …
    """
    return ProviderModel(name)


class ProviderModel:
    """A provider's model; it may be used in several event loops at once, with a client for each.

    Connections are closed when their loop ends, or by `await model.aclose()` for the running loop.
    """

    __slots__ = ("__weakref__", "_history", "_provider", "name", "sessions")

    def __init__(self, name: str) -> None:
        provider = name.partition(":")[0]
        self.name = name
        self._provider = _SAME.get(provider, provider)
        self._history = History(self._provider)
        self.sessions = Sessions(self._build)

    async def __call__(self, request: ModelRequest, /) -> AsyncGenerator[Chunk, None]:
        """Stream the answer; its connection is closed before this generator is."""
        pump = Pump(lambda put: self._pull(request, put))
        chunks = pump.chunks
        pump.start()
        try:
            while await pump.more():
                while chunks:
                    yield chunks.popleft()
        except Exception as error:
            told = failure(error, self.name)
            if told is error:
                raise
            raise told from error
        finally:
            await pump.close()

    def price(self, usage: Usage) -> float | None:
        """Give what some usage of this model costs, if that is known."""
        return price(self.name, usage)

    async def aclose(self) -> None:
        """Close the connections of the running event loop; the next request opens new ones."""
        await self.sessions.aclose()

    async def _pull(self, request: ModelRequest, put: Put) -> None:
        model = await self.sessions.here()
        reading = Reading(put, self.name, self._provider)
        async with (
            Watch(reading.tell_usage),
            model_request_stream(
                model,
                self._history.translate(request.messages, request.instructions),
                model_settings=cast("ModelSettings", thawed(request.settings)),
                model_request_parameters=_parameters(request),
                instrument=False,
            ) as stream,
        ):
            await reading.read(stream)
        reading.estimate_usage(sum(map(size, request.messages)) + len(request.instructions))

    def _build(self, client: httpx2.AsyncClient) -> tuple[Model, Provider]:
        """Make the model and its provider; whatever is wrong with the name is told here."""
        made: list[Provider] = []

        def factory(provider: str) -> Provider:
            made.append(_provider(provider, client))
            return made[0]

        try:
            return infer_model(self.name, factory), made[0]
        except ImportError as error:
            raise _missing(self.name, error) from error
        except ValueError as error:
            raise UnknownModelError(self.name, _first_sentence(error)) from error
        except Exception as error:
            raise _unusable(self.name, error) from error

    def __repr__(self) -> str:
        return f"<ProviderModel {self.name}>"


def _provider(name: str, client: httpx2.AsyncClient) -> Provider:
    """Make a provider on a client of ours, where it takes one, and without its own retries."""
    kind = infer_provider_class(name)
    takes = inspect.signature(kind.__init__).parameters.get("http_client")
    # Those who want the older httpx, or none, make their own client.
    fits = takes is not None and not str(takes.annotation).startswith("httpx.")
    make = cast("Callable[..., Provider]", kind)
    provider = make(http_client=client) if fits else infer_provider(name)
    if hasattr(provider.client, "max_retries"):
        provider.client.max_retries = 0
    return provider


def _parameters(request: ModelRequest) -> ModelRequestParameters:
    tools = [
        ToolDefinition(
            name=tool.name, description=tool.description, parameters_json_schema=thawed(tool.parameters)
        )
        for tool in request.tools
    ]
    return ModelRequestParameters(function_tools=tools)


def _missing(name: str, error: ImportError) -> UserError:
    extra = name.partition("-" if "-" in name.partition(":")[0] else ":")[0]
    if extra in _EXTRAS:
        return MissingExtraError(f"model {name!r}", extra)
    return UserError(f"model {name!r} needs an optional package of pydantic-ai: {error}")


def _unusable(name: str, error: Exception) -> UserError:
    said = str(error)
    key = _KEY.search(said)
    if key is not None:
        return UserError(f"model {name!r} needs a key: set the environment variable {key[0]}")
    if isinstance(error, Misuse) and said.startswith("Unknown model"):
        return UnknownModelError(name, _first_sentence(error))
    return UserError(f"model {name!r} cannot be used: {_first_sentence(error)}")


def _first_sentence(error: Exception) -> str:
    return without_secrets(re.split(r"\.\s|\n", str(error))[0] or type(error).__name__)
