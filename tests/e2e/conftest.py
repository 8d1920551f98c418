"""What the tests of the console share: a browser for each module, and servers that end with their test."""

from collections.abc import Generator, Mapping
from contextlib import ExitStack
from typing import Protocol

import pytest
from selenium.webdriver import Chrome

from andon import Agent
from andon.serve.settings import Settings
from tests.e2e.chromium import chromium
from tests.e2e.page import Page
from tests.e2e.stage import ANYWHERE, Stage, staged


class Serve(Protocol):
    """Serves agents until the test is over."""

    def __call__(self, agents: Mapping[str, Agent], settings: Settings = ANYWHERE) -> Stage:
        """Begin."""
        ...


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Generator[Chrome]:
    """A browser."""
    with chromium(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture
def serve() -> Generator[Serve]:
    """Serve agents."""
    with ExitStack() as stack:

        def begin(agents: Mapping[str, Agent], settings: Settings = ANYWHERE) -> Stage:
            return stack.enter_context(staged(agents, settings))

        yield begin


@pytest.fixture
def page(serve: Serve, browser: Chrome) -> Generator[Page]:
    """A page that is left before its server ends, and whose log must have no error."""
    _ = serve
    page = Page(browser)
    yield page
    page.leave()
