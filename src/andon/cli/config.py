"""Config: a server's settings: as options say, else the environment, else as they are by default."""

from pathlib import Path

from msgspec import convert
from pydantic import BaseModel, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from andon.errors import UserError
from andon.serve.settings import Jwt, Settings

DEFAULT = Settings()


class Believed(BaseModel):
    """Whose tokens are believed."""

    issuer: str
    audience: str
    jwks: str
    user: str = "sub"
    scopes: str = "scope"


class Config(BaseSettings):
    """What the environment may say, with ANDON_ before each name, as in ANDON_JWT__ISSUER."""

    model_config = SettingsConfigDict(env_prefix="ANDON_", env_nested_delimiter="__", extra="ignore")

    host: str = DEFAULT.host
    port: int = DEFAULT.port
    keys: Path | None = None
    jwt: Believed | None = None
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    disconnect_grace: float = DEFAULT.disconnect_grace
    max_body: int = DEFAULT.max_body
    max_headers: int = DEFAULT.max_headers
    streams_per_user: int = DEFAULT.streams_per_user
    keep_alive: float = DEFAULT.keep_alive
    drain_grace: float = DEFAULT.drain_grace
    concurrency: int = DEFAULT.concurrency
    keep_for: float | None = None
    keep_sessions: int | None = None


def settings_of(**options: object) -> Settings:
    """Put settings together; an option that was not given is None."""
    given = {name: value for name, value in options.items() if value is not None}
    try:
        config = Config.model_validate({**Config().model_dump(), **given})
    except ValidationError as error:
        told = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        raise UserError(f"the settings cannot be: {told}") from error
    jwt = None if config.jwt is None else Jwt(**config.jwt.model_dump())
    return convert(config.model_dump() | {"jwt": jwt}, Settings)
