"""A model string that cannot be is met with an error that says what to do."""

import subprocess
import sys

import pytest

from andon import Agent
from andon.adapters.models import resolve
from andon.errors import MissingExtraError, UnknownModelError, UserError

KEYS = {"openai-chat": "OPENAI", "openai": "OPENAI", "anthropic": "ANTHROPIC"}


@pytest.mark.parametrize("provider", KEYS)
def test_a_missing_key_is_named(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its environment variable, where the model is named."""
    monkeypatch.delenv(f"{KEYS[provider]}_API_KEY", raising=False)
    monkeypatch.delenv(f"{KEYS[provider]}_BASE_URL", raising=False)

    with pytest.raises(UserError, match=f"environment variable {KEYS[provider]}_API_KEY"):
        Agent(f"{provider}:some-model")


def test_an_unknown_provider_is_told() -> None:
    """With the way to write it."""
    with pytest.raises(UnknownModelError, match="provider:name"):
        resolve("nobody:some-model")


@pytest.mark.parametrize("string", ["some-model", "nobody:some-model", "openai:"])
def test_an_agent_knows_its_providers(string: str) -> None:
    """Before anything is loaded."""
    with pytest.raises(UnknownModelError, match=string):
        Agent(string)


@pytest.mark.parametrize("extra", ["openai", "anthropic", "google"])
def test_a_missing_sdk_names_the_extra(extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line to type is in the message."""
    monkeypatch.setitem(sys.modules, f"pydantic_ai.providers.{extra}", None)

    with pytest.raises(MissingExtraError, match=f"pip install 'andon\\[{extra}]'"):
        resolve(f"{extra}:some-model")


def test_a_missing_package_that_is_no_extra_of_ours_is_told() -> None:
    """A provider that only pydantic-ai knows."""
    with pytest.raises(UserError, match="groq"):
        resolve("groq:some-model")


def test_without_pydantic_ai_the_extra_is_named() -> None:
    """In an interpreter of its own, in which it cannot be imported."""
    code = (
        "import sys; sys.modules['pydantic_ai'] = None\n"
        "from andon import Agent\n"
        "try: Agent('openai-chat:some-model')\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout  # noqa: S603

    assert "MissingExtraError" in told
    assert "pip install 'andon[openai]'" in told


def test_a_model_shows_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing of its key."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-fake")
    model = resolve("openai:gpt-5")

    assert model.name == "openai:gpt-5"
    assert repr(model) == "<ProviderModel openai:gpt-5>"
