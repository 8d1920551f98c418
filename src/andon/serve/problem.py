"""Problem: errors as RFC 9457 `application/problem+json`: what, which, and what now."""

import math
from collections.abc import Iterable
from http import HTTPStatus
from typing import cast

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute

from andon.core.text import clean, clean_all
from andon.errors import SessionError, SessionProblem, UserError
from andon.runtime.record import logger

MEDIA = "application/problem+json"
MOST_ERRORS = 10
LONGEST = 2_000  # characters that an answer repeats of what it was told

STATUS: dict[SessionProblem, HTTPStatus] = {
    "missing": HTTPStatus.NOT_FOUND,
    "conflict": HTTPStatus.CONFLICT,
    "full": HTTPStatus.TOO_MANY_REQUESTS,
    "busy": HTTPStatus.SERVICE_UNAVAILABLE,
    "fenced": HTTPStatus.SERVICE_UNAVAILABLE,
    "newer": HTTPStatus.SERVICE_UNAVAILABLE,
    "broken": HTTPStatus.INTERNAL_SERVER_ERROR,
    "closed": HTTPStatus.SERVICE_UNAVAILABLE,
}
TRY_AGAIN = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})


class Problem(Exception):  # noqa: N818 — it is the answer, named as its RFC names it
    """An answer that says what is wrong."""

    def __init__(self, status: HTTPStatus, detail: str, *, retry_after: float | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.retry_after = retry_after

    def response(self) -> Response:
        """Write it down."""
        return answer(self.status, self.detail, retry_after=self.retry_after)


def answer(
    status: HTTPStatus,
    detail: str,
    *,
    retry_after: float | None = None,
    errors: list[dict[str, str]] | None = None,
    headers: dict[str, str] | None = None,
) -> Response:
    """Make the response that tells of a problem."""
    body: dict[str, object] = {
        "type": "about:blank",
        "title": status.phrase,
        "status": status.value,
        "detail": clean(detail[:LONGEST]),
    }
    if errors:
        body["errors"] = clean_all(errors)
    sent = dict(headers or {})
    if status in TRY_AGAIN:
        sent["Retry-After"] = str(math.ceil(retry_after or 1.0))
    if status is HTTPStatus.UNAUTHORIZED:
        sent["WWW-Authenticate"] = "Bearer"
    return Response(msgspec.json.encode(body), status.value, sent, media_type=MEDIA)


def missing(what: str) -> Problem:
    """Say that there is no such thing, or that it is somebody else's: nobody can tell which."""
    return Problem(HTTPStatus.NOT_FOUND, what)


def unprocessable(what: str) -> Problem:
    """Say that a request cannot be understood."""
    return Problem(HTTPStatus.UNPROCESSABLE_ENTITY, what)


def of_session(error: SessionError) -> Response:
    """Tell of what a session cannot do."""
    return answer(STATUS[error.kind], str(error))


def _of_validation(error: RequestValidationError) -> Response:
    errors = [
        {
            "where": ".".join(str(part) for part in cast("tuple[object, ...]", one["loc"]))[:200],
            "problem": str(one["msg"])[:300],
        }
        for one in error.errors()[:MOST_ERRORS]
    ]
    told = "; ".join(f"{one['where']}: {one['problem']}" for one in errors)
    return answer(HTTPStatus.UNPROCESSABLE_ENTITY, f"the request cannot be understood: {told}", errors=errors)


def _of_http(error: HTTPException, allowed: Iterable[str]) -> Response:
    status = HTTPStatus(error.status_code)
    headers = dict(error.headers or {})
    detail = str(error.detail)
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(sorted(allowed))
        detail = f"this takes {headers['Allow']} only"
    return answer(status, detail, headers=headers)


def _of_bug(request: Request, error: Exception) -> Response:
    logger.error("%s %s failed: a bug of Andon", request.method, request.url.path, exc_info=error)
    return answer(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "the server failed, which is a bug of Andon: its log says more; what was asked may or may not stand",
    )


def install(app: FastAPI, routes: Iterable[BaseRoute]) -> None:
    """Let an app answer every error with a problem; of a wrong method, with those that its routes take."""
    known = [route for route in routes if isinstance(route, APIRoute)]

    async def on_error(request: Request, error: Exception) -> Response:
        match error:
            case Problem():
                return error.response()
            case SessionError():
                return of_session(error)
            case UserError():
                return answer(HTTPStatus.UNPROCESSABLE_ENTITY, str(error))
            case RequestValidationError():
                return _of_validation(error)
            case HTTPException():
                path = request.url.path
                matching = [route.methods or () for route in known if route.path_regex.match(path)]
                return _of_http(error, {method for methods in matching for method in methods})
            case _:
                return _of_bug(request, error)

    for kind in (Problem, UserError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, on_error)
