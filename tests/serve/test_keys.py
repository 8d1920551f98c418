"""Keys and JWTs: who is believed, and what is said to everybody else."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import anyio
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
    generate_private_key,
)
from jwt.algorithms import ECAlgorithm
from starlette.requests import HTTPConnection

from andon.errors import UserError
from andon.serve.auth import Who, check_bind, is_loopback
from andon.serve.keys import Keys, digest, new_key
from andon.serve.problem import Problem
from andon.serve.settings import Jwt, Settings
from andon.serve.tokens import authority_of

ISSUER, AUDIENCE = "https://login.example", "andon"


def showing(token: str, kind: str = "http") -> HTTPConnection:
    """Make a connection that shows a token: in a header, or among the protocols of a WebSocket."""
    if kind == "websocket":
        return HTTPConnection({"type": kind, "headers": [], "subprotocols": ["andon", f"bearer.{token}"]})
    return HTTPConnection({"type": kind, "headers": [(b"authorization", f"Bearer {token}".encode())]})


def test_a_key_is_random_and_its_line_does_not_tell_it() -> None:
    """Only its hash is kept."""
    (one, line), (two, _) = (new_key("laptop", ["read"], "ann") for _ in range(2))
    assert one != two
    assert len(one) > 40
    assert one not in line
    assert json.loads(line) == {"name": "laptop", "scopes": ["read"], "sha256": digest(one), "user": "ann"}


@pytest.mark.parametrize("kind", ["http", "websocket"])
async def test_a_key_of_the_file_says_whose_it_is(tmp_path: Path, kind: str) -> None:
    """An admin reaches everybody."""
    ann, root = new_key("laptop", ["run", "read"], "ann"), new_key("root", ["admin"])
    path = tmp_path / "keys"
    path.write_text(f"# keys\n{ann[1]}\n\n{root[1]}\n")
    authority = authority_of(Settings(keys=path))
    who = await authority.who(showing(ann[0], kind))
    assert who == Who("laptop", "ann", frozenset({"run", "read"}))
    assert (who.reaches("ann"), who.reaches("bob")) == (True, False)
    assert (await authority.who(showing(root[0], kind))).reaches("bob")


@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        "{}",
        '{"name":"x","scopes":["read"],"sha256":"0"}',
        '{"name":"x","scopes":["fly"],"sha256":"0","user":"ann"}',
        '{"name":"x","scopes":["read"],"sha256":"0","user":"a:b"}',
    ],
)
def test_a_line_that_is_no_key_is_named(tmp_path: Path, line: str) -> None:
    """By file and number, and it says how to make one."""
    path = tmp_path / "keys"
    path.write_text(f"# keys\n{line}\n")
    with pytest.raises(UserError, match=r"keys:2 is no key .* make one with `andon\.serve\.keys\.new_key`"):
        Keys.of_file(path)


def test_a_file_that_is_not_there_is_an_error() -> None:
    """And no server without keys."""
    with pytest.raises(UserError, match="the keys cannot be read"):
        authority_of(Settings(keys=Path("/nowhere/keys")))


@pytest.mark.parametrize(("scopes", "user"), [(["fly"], "ann"), (["read"], None), (["read"], "a b")])
def test_a_key_that_could_not_be_used_is_not_made(scopes: list[str], user: str | None) -> None:
    """It says what is wrong."""
    with pytest.raises(UserError):
        new_key("x", scopes, user)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org", ""])  # noqa: S104 — refused
def test_other_machines_are_not_let_in_without_tokens(host: str) -> None:
    """The error says how."""
    with pytest.raises(UserError, match="nobody needs a token: name a file of keys"):
        check_bind(Settings(host=host))
    check_bind(Settings(host=host, keys=Path("keys")))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_this_machine_needs_no_token(host: str) -> None:
    """By any of its names."""
    assert is_loopback(host)
    check_bind(Settings(host=host))


# JWT


@pytest.fixture
def key() -> EllipticCurvePrivateKey:
    """A key of the issuer."""
    return generate_private_key(SECP256R1())


def key_set(*keys: tuple[str, EllipticCurvePrivateKey]) -> str:
    """Write down the public keys of the issuer."""
    made: list[dict[str, object]] = []
    for name, one in keys:
        public = cast("dict[str, object]", ECAlgorithm.to_jwk(one.public_key(), as_dict=True))
        made.append({**public, "kid": name, "alg": "ES256", "use": "sig"})
    return json.dumps({"keys": made})


def token(key: EllipticCurvePrivateKey, claims: dict[str, object] | None = None, *, kid: str = "k1") -> str:
    """Sign a token; a claim of None is left out."""
    told: dict[str, object] = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "ann",
        "scope": "run read openid",
        "exp": time.time() + 60,
        **(claims or {}),
    }
    given = {name: value for name, value in told.items() if value is not None}
    return jwt.encode(given, key, algorithm="ES256", headers={"kid": kid})


def settings_of(path: Path) -> Settings:
    """Trust the issuer whose keys are in a file."""
    return Settings(jwt=Jwt(issuer=ISSUER, audience=AUDIENCE, jwks=str(path)))


async def test_a_jwt_of_the_issuer_says_who_it_is(tmp_path: Path, key: EllipticCurvePrivateKey) -> None:
    """With the scopes that mean something here; as words or as a list."""
    path = tmp_path / "jwks.json"
    path.write_text(key_set(("k1", key)))
    authority = authority_of(settings_of(path))
    assert await authority.who(showing(token(key))) == Who("ann", "ann", frozenset({"run", "read"}))
    listed = await authority.who(showing(token(key, {"scope": ["admin"]})))
    assert listed == Who("ann", None, frozenset({"admin"}))
    assert (await authority.who(showing(token(key, {"scope": None})))).scopes == frozenset()


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": 1.0},
        {"exp": None},
        {"iss": "https://evil.example"},
        {"aud": "another"},
        {"sub": None},
        {"sub": "a:b"},
        {"nbf": 9e9},
    ],
)
async def test_a_jwt_that_is_not_valid_is_refused(
    tmp_path: Path, key: EllipticCurvePrivateKey, claims: dict[str, object]
) -> None:
    """401."""
    path = tmp_path / "jwks.json"
    path.write_text(key_set(("k1", key)))
    with pytest.raises(Problem) as refused:
        await authority_of(settings_of(path)).who(showing(token(key, claims)))
    assert refused.value.status == 401


def _unsigned(key: EllipticCurvePrivateKey) -> str:
    _ = key
    return jwt.encode({"sub": "ann", "exp": 9e9}, "", algorithm="none")


def _by_another(key: EllipticCurvePrivateKey) -> str:
    _ = key
    return token(generate_private_key(SECP256R1()))


def _symmetric(key: EllipticCurvePrivateKey) -> str:
    _ = key
    claims = {"sub": "ann", "iss": ISSUER, "aud": AUDIENCE, "exp": 9e9}
    return jwt.encode(claims, "x" * 32, algorithm="HS256", headers={"kid": "k1"})


def _of_no_parts(key: EllipticCurvePrivateKey) -> str:
    _ = key
    return "a.b"


def _of_no_known_key(key: EllipticCurvePrivateKey) -> str:
    return token(key, kid="k9")


@pytest.mark.parametrize("forge", [_unsigned, _by_another, _symmetric, _of_no_known_key, _of_no_parts])
async def test_a_forged_jwt_is_refused(
    tmp_path: Path, key: EllipticCurvePrivateKey, forge: Callable[[EllipticCurvePrivateKey], str]
) -> None:
    """Unsigned, signed by somebody else, or by what everybody knows."""
    path = tmp_path / "jwks.json"
    path.write_text(key_set(("k1", key)))
    with pytest.raises(Problem) as refused:
        await authority_of(settings_of(path)).who(showing(forge(key)))
    assert refused.value.status == 401


async def test_a_new_key_of_the_issuer_is_fetched_but_not_for_everybody(
    tmp_path: Path, key: EllipticCurvePrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unknown names make it look once a minute at most."""
    monkeypatch.setattr("andon.serve.tokens.REFRESH_AFTER", 0.0)
    new = generate_private_key(SECP256R1())
    path = anyio.Path(tmp_path / "jwks.json")
    await path.write_text(key_set(("k1", key)))
    authority = authority_of(settings_of(Path(path)))
    await authority.who(showing(token(key)))
    await path.write_text(key_set(("k1", key), ("k2", new)))
    assert (await authority.who(showing(token(new, kid="k2")))).user == "ann"
    monkeypatch.setattr("andon.serve.tokens.REFRESH_AFTER", 60.0)
    with pytest.raises(Problem):
        await authority.who(showing(token(new, kid="k3")))
    await path.write_text(key_set(("k3", new)))
    with pytest.raises(Problem):
        await authority.who(showing(token(new, kid="k3")))


@pytest.mark.parametrize("source", ["/nowhere/jwks.json", "http://127.0.0.1:1/jwks.json"])
async def test_an_issuer_that_cannot_be_reached_is_not_the_clients_fault(
    key: EllipticCurvePrivateKey, source: str
) -> None:
    """503, and nobody is let in."""
    authority = authority_of(settings_of(Path(source)))
    if source.startswith("http"):
        authority = authority_of(Settings(jwt=Jwt(issuer=ISSUER, audience=AUDIENCE, jwks=source)))
    with pytest.raises(Problem) as refused:
        await authority.who(showing(token(key)))
    assert refused.value.status == 503
