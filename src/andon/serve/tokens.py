"""Tokens: believes those who show a key of our own, or a JWT of an issuer that we trust."""

from http import HTTPStatus
from typing import cast

import anyio
import httpx2
import jwt
from fastapi.requests import HTTPConnection

from andon.core.command import check_id
from andon.core.stop import MAX_BY
from andon.runtime.record import logger
from andon.serve.auth import SCOPES, Anybody, Authority, Scope, Who, token_of, unknown
from andon.serve.keys import PREFIX, Keys
from andon.serve.problem import Problem
from andon.serve.settings import Jwt, Settings

# None that is symmetric: who could check such a token could make one.
ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
REFRESH_AFTER = 60.0  # seconds between two looks at an issuer's keys, however many unknown ones are named
FETCH_WITHIN = 10.0


class KeySet:
    """The keys of an issuer, fetched when one is named that is not known yet."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._keys: dict[str | None, jwt.PyJWK] = {}
        self._next = 0.0
        self._trouble = ""
        self._lock = anyio.Lock()

    async def key(self, key_id: str | None) -> jwt.PyJWK | None:
        """Give a key by its id; the only one, if a token names none."""
        async with self._lock:
            found = self._find(key_id)
            if found is None and anyio.current_time() >= self._next:
                await self._read()
                found = self._find(key_id)
            if found is None and self._trouble:
                raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, self._trouble)
            return found

    async def _read(self) -> None:
        self._next = anyio.current_time() + REFRESH_AFTER
        try:
            read = jwt.PyJWKSet.from_json(await self._fetch())
        except (httpx2.HTTPError, OSError, ValueError, jwt.PyJWTError) as error:
            self._trouble = "the keys of the issuer of tokens cannot be read now: try again in a minute"
            logger.warning("the key set %s cannot be read: %s", self._source, error)
            return
        self._trouble = ""
        self._keys = {key.key_id: key for key in read.keys}

    def _find(self, key_id: str | None) -> jwt.PyJWK | None:
        if key_id is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(key_id)

    async def _fetch(self) -> str:
        if not self._source.startswith(("https://", "http://")):
            return await anyio.Path(self._source).read_text()
        async with httpx2.AsyncClient(timeout=FETCH_WITHIN) as client:
            answer = await client.get(self._source)
            return answer.raise_for_status().text


class Issuer:
    """Checks JWTs: signature, issuer, audience and times."""

    def __init__(self, settings: Jwt) -> None:
        self._settings = settings
        self._keys = KeySet(settings.jwks)

    async def who(self, token: str) -> Who:
        """Say whose token it is; it is refused without saying more than why."""
        try:
            named = jwt.get_unverified_header(token).get("kid")
            key = await self._keys.key(named if isinstance(named, str) else None)
            if key is None:
                raise unknown("the issuer of this token has no such key: get a new token")
            claims = jwt.decode(
                token,
                key,
                algorithms=ALGORITHMS,
                audience=self._settings.audience,
                issuer=self._settings.issuer,
                options={"require": ["exp", "iss", "aud", self._settings.user]},
            )
        except jwt.PyJWTError as error:
            raise unknown(f"this token is not valid ({error}): get a new one") from error
        return self._who(cast("dict[str, object]", claims))

    def _who(self, claims: dict[str, object]) -> Who:
        user, said = claims[self._settings.user], claims.get(self._settings.scopes) or ""
        words = said.split() if isinstance(said, str) else cast("list[object]", said)
        scopes: frozenset[Scope] = frozenset(scope for scope in SCOPES if scope in words)
        try:
            check_id("user", cast("str", user))
        except ValueError as error:
            raise unknown(f"this token is of nobody who could have a session: {error}") from error
        name = cast("str", user)[:MAX_BY]
        return Who(name, None if "admin" in scopes else name, scopes)


class Tokens:
    """Asks for a token."""

    def __init__(self, keys: Keys | None, issuer: Issuer | None) -> None:
        self._keys = keys
        self._issuer = issuer

    async def who(self, connection: HTTPConnection) -> Who:
        """Say whose token was shown."""
        token = token_of(connection)
        if self._keys is not None:
            known = self._keys.who(token)
            if known is not None:
                return known
        if self._issuer is None or token.startswith(PREFIX):
            raise unknown("nobody has this token: it was mistyped, or taken back")
        return await self._issuer.who(token)


def authority_of(settings: Settings) -> Authority:
    """Make what decides who somebody is, as the settings say; reads the file of keys."""
    if settings.is_open:
        return Anybody()
    return Tokens(
        None if settings.keys is None else Keys.of_file(settings.keys),
        None if settings.jwt is None else Issuer(settings.jwt),
    )
