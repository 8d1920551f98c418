"""A server's settings come from options, else from the environment, else they are the safe ones."""

from pathlib import Path

import pytest

from andon.cli.config import Config, settings_of
from andon.errors import UserError
from andon.serve.settings import Jwt, Settings


def test_nothing_said_is_as_it_is_by_default() -> None:
    """Everything that a server may be told can be said in the environment."""
    assert settings_of(host=None) == Settings()
    assert set(Config.model_fields) == set(Settings.__struct_fields__)


def test_options_go_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each on its own."""
    monkeypatch.setenv("ANDON_PORT", "9000")
    monkeypatch.setenv("ANDON_MAX_BODY", "1000")
    monkeypatch.setenv("ANDON_HOSTS", '["andon.example"]')
    monkeypatch.setenv("ANDON_KEYS", "keys.jsonl")
    settings = settings_of(port=9001, host=None)

    assert (settings.port, settings.max_body, settings.hosts) == (9001, 1000, ("andon.example",))
    assert settings.keys == Path("keys.jsonl")


def test_an_issuer_is_named_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the environment or by options."""
    parts = {"issuer": "https://id.example", "audience": "andon", "jwks": "keys.json"}
    assert settings_of(jwt=parts).jwt == Jwt(issuer="https://id.example", audience="andon", jwks="keys.json")

    for name, value in parts.items():
        monkeypatch.setenv(f"ANDON_JWT__{name.upper()}", value)
    assert settings_of(jwt=None).jwt == Jwt(issuer="https://id.example", audience="andon", jwks="keys.json")


def test_settings_that_cannot_be_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """With their names."""
    with pytest.raises(UserError, match=r"the settings cannot be: jwt\.audience: Field required"):
        settings_of(jwt={"issuer": "https://id.example", "jwks": "keys.json"})
    monkeypatch.setenv("ANDON_PORT", "many")
    with pytest.raises(UserError, match="port: Input should be a valid integer"):
        settings_of()
