"""Pages run as a reader would type them."""

import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = """
# A page

```python
import asyncio

async def soon(value):
    await asyncio.Event().wait() if value is None else None
    return value
```

```python
answer = await soon(42)
loop = asyncio.get_running_loop()
```

```python
assert answer == {expected}
assert __name__ == "__main__"
```

```python
async def same():
    return asyncio.get_running_loop() is loop

assert await same()
```

<!-- skip: next -->

```python
raise RuntimeError("skipped")
```

```console
$ not python
```
"""


def run_page(pytester: pytest.Pytester, page: str) -> pytest.RunResult:
    """Run one page under docs as the repository does."""
    shutil.copy(ROOT / "conftest.py", pytester.path)
    (folder := pytester.path / "docs" / "deeper").mkdir(parents=True)
    (folder / "page.md").write_text(page)
    return pytester.runpytest("-p", "no:cacheprovider", "docs")


def test_a_page_awaits_at_the_top_level_on_one_loop(pytester: pytest.Pytester) -> None:
    """A name awaited in one block is there, on the same loop, in the next."""
    run_page(pytester, PAGE.replace("{expected}", "42")).assert_outcomes(passed=6)


def test_a_wrong_block_fails_at_its_own_line(pytester: pytest.Pytester) -> None:
    """The traceback points into the page."""
    result = run_page(pytester, PAGE.replace("{expected}", "43"))

    result.assert_outcomes(passed=5, failed=1)
    line = PAGE.splitlines().index("assert answer == {expected}") + 1
    result.stdout.fnmatch_lines([f"*page.md*:{line}*"])
