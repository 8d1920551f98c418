"""Auth: who somebody is, and what they may."""

from http import HTTPStatus
from ipaddress import ip_address
from typing import Literal, Protocol

from fastapi.requests import HTTPConnection
from msgspec import Struct

from andon.errors import UserError
from andon.serve.problem import Problem
from andon.serve.settings import Settings

Scope = Literal["run", "cancel", "read", "admin"]
SCOPES: tuple[Scope, ...] = Scope.__args__  # type: ignore[attr-defined]

SUBPROTOCOL = "bearer."  # a browser can give a WebSocket no headers, but protocols


class Who(Struct, frozen=True):
    """Somebody: what they are called in causes, whose sessions they reach, and what they may there.

    `user` None reaches everybody's: that of an admin, who may do everything.
    """

    name: str
    user: str | None
    scopes: frozenset[Scope]

    def reaches(self, user: str) -> bool:
        """Whether the sessions of a user are theirs to see."""
        return self.user is None or self.user == user

    def check(self, scope: Scope) -> None:
        """Refuse what they may not do."""
        if scope in self.scopes or "admin" in self.scopes:
            return
        told = ", ".join(sorted(self.scopes)) or "none"
        raise Problem(
            HTTPStatus.FORBIDDEN,
            f"this needs the scope {scope}, and the token of {self.name} has: {told}; use one that has it",
        )


class Authority(Protocol):
    """Knows who shows which token."""

    async def who(self, connection: HTTPConnection) -> Who:
        """Say who asks; `Problem` 401 if nobody knows."""
        ...


class Anybody:
    """Believes everybody, and lets them do everything: for this machine alone."""

    WHO = Who("local", None, frozenset(SCOPES))

    async def who(self, connection: HTTPConnection) -> Who:
        """Say that somebody at this machine asks."""
        _ = connection
        return self.WHO


def token_of(connection: HTTPConnection) -> str:
    """Read the token that somebody shows; a WebSocket may have it among its protocols."""
    kind, _, token = connection.headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and token.strip():
        return token.strip()
    offered: list[str] = connection.scope.get("subprotocols", [])
    for protocol in offered:
        if protocol.startswith(SUBPROTOCOL):
            return protocol.removeprefix(SUBPROTOCOL)
    raise unknown("this needs a token: send the header 'Authorization: Bearer …'")


def protocol_of(connection: HTTPConnection) -> str | None:
    """Choose among the protocols that a WebSocket offers: a browser wants one of them back."""
    offered: list[str] = connection.scope.get("subprotocols", [])
    return next((one for one in offered if not one.startswith(SUBPROTOCOL)), next(iter(offered), None))


def unknown(why: str) -> Problem:
    """Say that nobody knows who asks."""
    return Problem(HTTPStatus.UNAUTHORIZED, why)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def check_bind(settings: Settings) -> None:
    """Refuse to let other machines in where nobody needs a token."""
    if settings.is_open and not is_loopback(settings.host):
        msg = (
            f"{settings.host} lets other machines in, and nobody needs a token: name a file of keys "
            "(make one with `andon.serve.keys.new_key`) or who issues JWTs, or listen on 127.0.0.1"
        )
        raise UserError(msg)
