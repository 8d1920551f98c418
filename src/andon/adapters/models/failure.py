"""Failures of providers, as errors that say whether to try again; no key is ever in their words."""

import os
import re
from collections.abc import Mapping

import httpx2
from msgspec import convert
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError, UnexpectedModelBehavior, UserError

from andon.errors import ModelError

MOST = 500  # characters of a provider's message
LEAST = 6  # characters of a key
TRANSIENT = {408, 409, 425, 429}
SERVER_ERROR = 500
PERMANENT = {
    "authentication_error",
    "context_length_exceeded",
    "insufficient_quota",
    "invalid_api_key",
    "invalid_prompt",
    "invalid_request_error",
    "not_found_error",
    "permission_error",
}
_SECRET = re.compile(r"(?:sk|key|gsk|xai)-[\w*-]{6,}|AIza[\w-]{20,}|(?<=Bearer )\S+")


def failure(error: BaseException, model: str) -> BaseException:
    """Say what a failed request means; what is no failure of the provider's is given as it is."""
    match error:
        case ModelHTTPError():
            return _answered(error, model)
        case ModelAPIError():
            return _broke_off(error, model)
        case httpx2.HTTPError() | httpx2.StreamError() | OSError():
            return ModelError(f"{model}: the connection failed: {_words(error)}", transient=True)
        case UnexpectedModelBehavior():
            return ModelError(f"{model}: {_words(error)}", transient=True)
        case UserError():
            return ModelError(f"{model}: {_words(error)}")
        case _:
            return error


def without_secrets(text: str) -> str:
    """Blot out the keys in a text, and cut it to a length that can be read."""
    for name, value in os.environ.items():
        if len(value) >= LEAST and name.endswith(("_KEY", "_TOKEN")):
            text = text.replace(value, "***")
    text = _SECRET.sub("***", text)
    return text if len(text) <= MOST else f"{text[:MOST]}…"


def _answered(error: ModelHTTPError, model: str) -> ModelError:
    """Tell an error status; in a newer library one inside the stream has one too."""
    headers = error.headers or {}
    kinds = _kinds(error.body)
    transient = (error.status_code in TRANSIENT or error.status_code >= SERVER_ERROR) and not (
        "insufficient_quota" in kinds or headers.get("x-should-retry") == "false"
    )
    said = without_secrets(_said(error.body) or "it gave no reason")
    return ModelError(
        f"{model} answered {error.status_code}: {said}",
        transient=transient,
        retry_after=_retry_after(headers) if transient else None,
    )


def _broke_off(error: ModelAPIError, model: str) -> ModelError:
    """Tell a connection that failed, or an error inside the stream."""
    cause = error.__cause__
    kinds = _kinds(getattr(cause, "body", None)) | {
        getattr(cause, "code", None),
        getattr(cause, "type", None),
    }
    permanent = bool(kinds & PERMANENT) or any(kind in str(error) for kind in PERMANENT)
    return ModelError(f"{model}: {_words(error)}", transient=not permanent)


def _kinds(body: object) -> set[object]:
    """Find the provider's own names for an error."""
    if not isinstance(body, Mapping):
        return set()
    fields = convert(body, dict[str, object])
    return {fields.get("code"), fields.get("type"), *_kinds(fields.get("error"))} - {None}


def _said(body: object) -> str:
    """Find the provider's message, wherever its dialect puts it."""
    if isinstance(body, str):
        return body
    if not isinstance(body, Mapping):
        return ""
    fields = convert(body, dict[str, object])
    return _said(fields.get("message")) or _said(fields.get("error")) or str(fields)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    for name, unit in (("retry-after-ms", 1000), ("retry-after", 1)):
        try:
            seconds = float(headers[name]) / unit
        except (KeyError, ValueError):
            continue
        return max(0.0, seconds)
    return None


def _words(error: BaseException) -> str:
    return without_secrets(str(error).strip() or type(error).__name__)
