"""Settings: what a server may be told; everything has a value that is safe."""

from pathlib import Path

from msgspec import Struct


class Jwt(Struct, frozen=True, kw_only=True):
    """Whose tokens are believed: who issues them, for whom, and where the issuer's keys are.

    `jwks` is a URL or a file. `user` and `scopes` name the claims that say who it is and what they may.
    """

    issuer: str
    audience: str
    jwks: str
    user: str = "sub"
    scopes: str = "scope"


class Settings(Struct, frozen=True, kw_only=True):
    """How a server listens, whom it believes, and how much it takes.

    `origins` may use it from web pages of elsewhere, and `hosts` are the names by which it may be called when
    nobody needs a token, besides those of this machine. Of sessions that nobody uses, those of the last
    `keep_for` seconds are kept, and of each user the last `keep_sessions`; None is all. Times are seconds.
    """

    host: str = "127.0.0.1"
    port: int = 8484
    keys: Path | None = None
    jwt: Jwt | None = None
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    max_body: int = 1_048_576
    max_headers: int = 32_768
    streams_per_user: int = 100
    keep_alive: float = 15.0
    drain_grace: float = 10.0
    disconnect_grace: float = 0.0
    concurrency: int = 100
    keep_for: float | None = None
    keep_sessions: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether nobody needs a token."""
        return self.keys is None and self.jwt is None
