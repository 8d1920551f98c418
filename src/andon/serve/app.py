"""App: the routes of a server, put together over one desk."""

from collections.abc import Mapping

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from andon.runtime.agent import Agent
from andon.runtime.office import Office
from andon.runtime.worker import Worker
from andon.serve import adk, health, live, many, problem, reference, run_live, runs, sessions, stream, verbs
from andon.serve.auth import Authority
from andon.serve.desk import Desk
from andon.serve.guard import Guard
from andon.serve.page import add_page
from andon.serve.settings import Settings
from andon.serve.tokens import authority_of

# Verbs first: `…/sessions/{session}` would take `s:cancel` for an id.
ROUTERS = (
    adk.router,
    run_live.router,
    live.router,
    verbs.router,
    many.router,
    stream.router,
    runs.router,
    sessions.router,
    health.router,
    reference.router,
)


def create_app(
    office: Office,
    agents: Mapping[str, Agent],
    settings: Settings | None = None,
    *,
    worker: Worker | None = None,
    authority: Authority | None = None,
) -> FastAPI:
    """Make the app of a server; its office's substrate is open, and somebody else runs the worker.

    It reads files: those of the console, and that of the keys unless an authority is given.
    """
    settings = settings or Settings()
    app = reference.new_app()
    app.state.desk = Desk(
        office, agents, settings=settings, worker=worker, authority=authority or authority_of(settings)
    )
    problem.install(app, [route for router in ROUTERS for route in router.routes])
    for router in ROUTERS:
        app.include_router(router)
    add_page(app)
    app.add_middleware(Guard, settings=settings)
    if settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.origins,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "Last-Event-ID"],
            expose_headers=["Andon-Run-Id", "Retry-After"],
        )
    return app
