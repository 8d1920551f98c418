"""README and the pages under docs run as tests, block by block."""

from pathlib import Path

from tests.docs_blocks import pages

pytest_collect_file = pages(Path(__file__).parent).pytest()
