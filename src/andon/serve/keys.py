"""Keys: tokens of our own: random, and known here only by their hashes."""

import hashlib
import hmac
import os
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Struct

from andon.core.command import check_id
from andon.errors import UserError
from andon.serve.auth import SCOPES, Scope, Who

PREFIX = "andon_"
BYTES = 32


class Entry(Struct, frozen=True, kw_only=True):
    """One key: whose it is, what it lets them do, and its hash; a line of the file, as JSON."""

    name: str
    scopes: tuple[Scope, ...]
    sha256: str
    user: str | None = None

    def __post_init__(self) -> None:
        if self.user is not None:
            check_id("user", self.user)
        elif "admin" not in self.scopes:
            raise ValueError(f"the key {self.name!r} is of no user: name one, or give it the scope admin")

    def who(self) -> Who:
        """Say who has it."""
        scopes = frozenset(self.scopes)
        return Who(self.name, None if "admin" in scopes else self.user, scopes)


_decoder = msgspec.json.Decoder(Entry)


def new_key(name: str, scopes: Iterable[Scope], user: str | None = None) -> tuple[str, str]:
    """Make a key: the token, which is shown once, and the line for the file, which does not tell it."""
    token = PREFIX + urlsafe_b64encode(os.urandom(BYTES)).decode().rstrip("=")
    given = tuple(scopes)
    wrong = [scope for scope in given if scope not in SCOPES]
    if wrong:
        raise UserError(f"there is no scope {wrong[0]!r}: choose from {', '.join(SCOPES)}")
    try:
        entry = Entry(name=name, user=user, scopes=given, sha256=digest(token))
    except ValueError as error:
        raise UserError(str(error)) from error
    return token, msgspec.json.encode(entry).decode()


def digest(token: str) -> str:
    """Hash a token; it is random and long, so a fast hash is safe."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


class Keys:
    """The keys of a file: one a line, as `new_key` writes them; empty lines and comments are passed over."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = tuple(entries)

    @classmethod
    def of_file(cls, path: Path) -> "Keys":
        """Read a file."""
        try:
            lines = path.read_text().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"the keys cannot be read: {error}") from error
        entries: list[Entry] = []
        for number, line in enumerate(lines, start=1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            try:
                entries.append(_decoder.decode(line))
            except (msgspec.DecodeError, ValueError) as error:
                msg = f"{path}:{number} is no key ({error}): make one with `andon.serve.keys.new_key`"
                raise UserError(msg) from error
        return cls(entries)

    def who(self, token: str) -> Who | None:
        """Say whose token it is, in the same time whichever it is."""
        hashed = digest(token)
        found: Entry | None = None
        for entry in self._entries:
            if hmac.compare_digest(entry.sha256, hashed):
                found = entry
        return None if found is None else found.who()
