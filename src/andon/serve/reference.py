"""Reference: the OpenAPI description of the routes, and a page that shows it, without a script."""

import hashlib
from base64 import b64encode
from html import escape
from importlib.metadata import version
from inspect import cleandoc
from typing import cast

import msgspec
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi

from andon.serve.shape import SHAPES

router = APIRouter(include_in_schema=False)

Json = dict[str, object]

PROBLEM: Json = {
    "type": "object",
    "title": "Problem",
    "description": "What is wrong, with what, and what to do now (RFC 9457).",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"where": {"type": "string"}, "problem": {"type": "string"}},
                "required": ["where", "problem"],
            },
        },
    },
    "required": ["type", "title", "status", "detail"],
}
# A Point is the sum of its flags; msgspec knows the single ones.
POINT: Json = {
    "type": "integer",
    "title": "Point",
    "description": "stream 1, model 2, tools 4, and their sums",
    "minimum": 0,
    "maximum": 7,
}
BEARER: Json = {
    "type": "http",
    "scheme": "bearer",
    "description": "A key of the server's file, or a JWT of the issuer that it trusts.",
}
WITHOUT_TOKEN = frozenset({"/healthz", "/readyz"})

STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem }
section { border-top: 1px solid #8886; padding: .5rem 0 }
h2 { font: 600 1rem ui-monospace, monospace; overflow-wrap: anywhere }
code { overflow-wrap: anywhere }
dt { font-family: ui-monospace, monospace }
"""
_HASH = b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
HEADERS = {
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{_HASH}'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}


class Described(FastAPI):
    """An app that describes itself exactly."""

    def openapi(self) -> Json:
        """Give the description."""
        if self.openapi_schema is None:
            made = cast("Json", get_openapi(title=self.title, version=self.version, routes=self.routes))
            parts = cast("dict[str, Json]", made["components"])
            parts["schemas"] |= _schemas()
            if not self.state.desk.settings.is_open:
                parts["securitySchemes"] = {"bearer": BEARER}
                _ask_for_tokens(cast("dict[str, dict[str, Json]]", made["paths"]))
            self.openapi_schema = made
        return cast("Json", self.openapi_schema)


def _schemas() -> Json:
    _, made = msgspec.json.schema_components(
        SHAPES, schema_hook=_anything, ref_template="#/components/schemas/{name}"
    )
    for schema in made.values():
        if "description" in schema:
            schema["description"] = cleandoc(schema["description"])
    return {**made, "Point": POINT, "Problem": PROBLEM}


def _anything(kind: type) -> Json:
    _ = kind
    return {"description": "any JSON"}


def _ask_for_tokens(paths: dict[str, dict[str, Json]]) -> None:
    for path, operations in paths.items():
        for operation in operations.values():
            operation["security"] = [] if path in WITHOUT_TOKEN else [{"bearer": []}]


def new_app() -> Described:
    """Make an app without routes but those of its description."""
    return Described(
        title="Andon",
        version=version("andon"),
        description="Agent runs that can be stopped, truthfully, at any moment.",
        docs_url=None,
        redoc_url=None,
    )


@router.get("/docs")
def docs(request: Request) -> Response:
    """Show the description to somebody who reads."""
    made = cast("Json", request.app.openapi())
    paths = cast("dict[str, dict[str, Json]]", made["paths"])
    told = [
        _section(method, path, operation)
        for path, operations in paths.items()
        for method, operation in operations.items()
    ]
    page = (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>Andon: API</title><style>{STYLE}</style>"
        "<meta name=viewport content='width=device-width'><h1>Andon: API</h1>"
        "<p>All of it, for machines: <a href=/openapi.json>openapi.json</a></p>"
    )
    return Response(page + "".join(told), media_type="text/html", headers=HEADERS)


def _section(method: str, path: str, operation: Json) -> str:
    parameters = cast("list[Json]", operation.get("parameters", []))
    answers = cast("dict[str, Json]", operation["responses"])
    given = "".join(
        f"<dt>{escape(str(one['name']))}<dd>{escape(str(one.get('description', one['in'])))}"
        for one in parameters
        if one["in"] != "path"
    )
    told = "".join(
        f"<dt>{escape(status)}<dd>{escape(str(answer['description']))}" for status, answer in answers.items()
    )
    words = escape(str(operation.get("description", "")))
    return f"<section><h2>{method.upper()} {escape(path)}</h2><p>{words}</p><dl>{given}{told}</dl></section>"
