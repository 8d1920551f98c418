"""Page: the files of the console, served as they are, with nothing from elsewhere."""

from pathlib import Path

from fastapi import FastAPI, Response

FOLDER = Path(__file__).parent / "console"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".webmanifest": "application/manifest+json",
}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def add_page(app: FastAPI, folder: Path = FOLDER) -> None:
    """Add a route for each file of the console, as they are now; its index is at `/`."""
    if not (folder / "index.html").is_file():
        return
    for path in sorted(folder.rglob("*")):
        if path.suffix in TYPES and path.is_file():
            name = path.relative_to(folder).as_posix()
            _add(app, "/" if name == "index.html" else f"/{name}", path)


def _add(app: FastAPI, route: str, path: Path) -> None:
    content, kind = path.read_bytes(), TYPES[path.suffix]

    async def file() -> Response:
        return Response(content, headers=HEADERS | {"Content-Type": kind})

    app.add_api_route(route, file, include_in_schema=False)
