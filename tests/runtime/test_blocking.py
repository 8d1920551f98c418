"""The watch over runtime tests is awake."""

import pathlib

import pytest
from blockbuster import BlockingError

import andon

READS = compile("path.read_text()", str(pathlib.Path(andon.__path__[0]) / "stand_in.py"), "eval")


async def test_andon_may_not_read_a_file_on_the_loop() -> None:
    """Code inside the package that blocks is an error."""
    with pytest.raises(BlockingError):
        eval(READS, {"path": pathlib.Path(__file__)})  # noqa: S307 - stands for code of the package


async def test_a_test_may_read_a_file() -> None:
    """The tests' own code is not watched."""
    assert pathlib.Path(__file__).read_text()  # noqa: ASYNC240 - that is the point
