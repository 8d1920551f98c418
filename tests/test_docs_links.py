"""The links between the pages lead somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def anchors(page: str) -> set[str]:
    """Name the headings of a page as GitHub does."""
    return {
        re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in HEADING.findall(page)
    }


def dead(page: Path) -> list[str]:
    """Give the links of a page that lead to no file here, or to no heading in it."""
    found: list[str] = []
    for link in LINK.findall(page.read_text()):
        name, _, heading = link.partition("#")
        target = (page.parent / name) if name else page
        if "://" in link:
            continue
        if not target.exists() or (heading and heading not in anchors(target.read_text())):
            found.append(link)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(page: Path) -> None:
    """To a file of the repository, and to a heading in it."""
    assert dead(page) == []


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    """Whether the file is missing or only the heading."""
    page = tmp_path / "page.md"
    page.write_text(
        "# A page, indeed\n[a](page.md#a-page-indeed) [b](#no) [c](gone.md) [d](https://example.org)"
    )

    assert dead(page) == ["#no", "gone.md"]
