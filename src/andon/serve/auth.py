"""Auth: who somebody is, and what they may."""

from http import HTTPStatus
from typing import Protocol

from fastapi.requests import HTTPConnection
from msgspec import Struct

from andon.serve.problem import Problem

SCOPES = ("run", "cancel", "read", "admin")


class Who(Struct, frozen=True):
    """Somebody: what they are called in causes, whose sessions they reach, and what they may there.

    `user` None reaches everybody's; it comes with the scope `admin`, and where nobody needs a token.
    """

    name: str
    user: str | None
    scopes: frozenset[str]

    def reaches(self, user: str) -> bool:
        """Whether the sessions of a user are theirs to see."""
        return self.user is None or self.user == user

    def check(self, *scopes: str) -> None:
        """Refuse what they may not do."""
        lacking = [scope for scope in scopes if scope not in self.scopes]
        if lacking:
            told = ", ".join(sorted(self.scopes)) or "none"
            raise Problem(
                HTTPStatus.FORBIDDEN,
                f"this needs the scope {lacking[0]}, and the token of {self.name} has: {told}; "
                "ask for one that has it",
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
