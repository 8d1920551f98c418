"""App: the routes of a server, put together over one desk."""

from collections.abc import Mapping

from fastapi import FastAPI

from andon.runtime.agent import Agent
from andon.runtime.office import Office
from andon.runtime.worker import Worker
from andon.serve import problem, runs, sessions, stream, verbs
from andon.serve.auth import Authority
from andon.serve.desk import Desk
from andon.serve.settings import Settings

# Verbs first: `…/sessions/{session}` would take `s:cancel` for an id.
ROUTERS = (verbs.router, stream.router, runs.router, sessions.router)


def create_app(
    office: Office,
    agents: Mapping[str, Agent],
    settings: Settings | None = None,
    *,
    worker: Worker | None = None,
    authority: Authority | None = None,
) -> FastAPI:
    """Make the app of a server; its office's substrate is open, and somebody else runs the worker."""
    app = FastAPI(title="Andon", docs_url=None, redoc_url=None)
    app.state.desk = Desk(office, agents, settings=settings or Settings(), worker=worker, authority=authority)
    problem.install(app)
    for router in ROUTERS:
        app.include_router(router)
    return app
