"""What the repository promises to whoever clones it."""

import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import cast

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent

PIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9.!+]+")
LOCK = re.compile(
    r"(^|/)(uv|poetry|pdm|Pipfile|package-lock|yarn|pnpm-lock|pylock[^/]*)[.](lock|json|ya?ml|toml)$|[.]lock$"
)
MACHINE_PATH = re.compile(r"(?<![\w.~-])(?:file:/{2})?/(?:home|root|Users|work|workspace|mnt)/[\w.]")
REGISTRY = re.compile(r"index[-_]url|find[-_]links|/simp[l]e/|registry[.]npmjs|files[.]pythonhosted")
HEADING = re.compile(r"^## \[(\d[^\]]*)\]", re.MULTILINE)
TARGETS = {"help", "setup", "demo", "test", "test-live", "check", "bench", "docs", "clean"}


def table(value: object) -> Mapping[str, object]:
    """Read a TOML table as one."""
    assert isinstance(value, dict)
    return cast("Mapping[str, object]", value)


def texts(value: object) -> list[str]:
    """Read a TOML array of strings as one, includes left out."""
    assert isinstance(value, list)
    return [one for one in cast("list[object]", value) if isinstance(one, str)]


CONFIG = table(tomllib.loads((ROOT / "pyproject.toml").read_text()))
PROJECT = table(CONFIG["project"])
EXTRAS = table(PROJECT["optional-dependencies"])


def tracked() -> list[str]:
    """List what git tracks, or would with the next `git add`."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = [git, "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - git itself
    return [name for name in listing.stdout.splitlines() if (ROOT / name).is_file()]


def lines_with(pattern: re.Pattern[str]) -> list[str]:
    """Find a pattern in the text of every tracked file."""
    return [
        f"{name}:{number}: {line.strip()[:100]}"
        for name in tracked()
        for number, line in enumerate((ROOT / name).read_text(errors="replace").splitlines(), 1)
        if pattern.search(line)
    ]


def test_no_lock_file_is_tracked() -> None:
    """constraints.txt does its work."""
    assert [name for name in tracked() if LOCK.search(name)] == []


def test_no_file_knows_the_machine_it_was_written_on() -> None:
    """A clone works anywhere."""
    assert lines_with(MACHINE_PATH) == []


def test_no_file_holds_a_registry_address() -> None:
    """Where packages come from is the reader's choice."""
    assert lines_with(REGISTRY) == []


def test_the_constraints_are_plain_pins() -> None:
    """One `name==version` a line, in order, each once."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    names = [canonicalize_name(line.partition("==")[0]) for line in lines]

    assert [line for line in lines if not PIN.fullmatch(line)] == []
    assert len(names) == len(set(names))


def test_every_direct_requirement_is_pinned() -> None:
    """Core, extras and tools install the same everywhere."""
    groups = [*EXTRAS.values(), *table(CONFIG["dependency-groups"]).values()]
    wanted = [*texts(PROJECT["dependencies"]), *(line for group in groups for line in texts(group))]
    direct = {canonicalize_name(Requirement(line).name) for line in wanted} - {"andon"}
    pinned = {
        canonicalize_name(line.partition("==")[0])
        for line in (ROOT / "constraints.txt").read_text().splitlines()
    }
    assert direct <= pinned, sorted(direct - pinned)


def reached_from(extra: str) -> set[str]:
    """Follow `andon[…]` from an extra to all that it brings."""
    own = [Requirement(line) for line in texts(EXTRAS[extra])]
    inner = {name for one in own if one.name == "andon" for name in one.extras}
    return {extra}.union(*(reached_from(name) for name in inner))


def test_all_means_every_extra() -> None:
    """`pip install andon[all]` leaves nothing out."""
    assert reached_from("all") == set(EXTRAS)


def test_one_version_everywhere() -> None:
    """The changelog's newest version is the package's."""
    newest = HEADING.findall((ROOT / "CHANGELOG.md").read_text())[0]

    assert newest == PROJECT["version"]
    assert metadata.version("andon") == PROJECT["version"], "run `make setup` again"


def test_one_python_floor_everywhere() -> None:
    """What is installed on, claimed and type-checked starts at the same version."""
    floor = str(PROJECT["requires-python"]).removeprefix(">=")
    claimed = [text.rpartition(" ")[2] for text in texts(PROJECT["classifiers"]) if ":: 3." in text]

    assert claimed[0] == floor
    assert table(table(CONFIG["tool"])["basedpyright"])["pythonVersion"] == floor


@pytest.mark.parametrize("group", ["console_scripts", "andon.models"])
def test_every_entry_point_leads_somewhere(group: str) -> None:
    """The command and the provider strings resolve to something that can be called."""
    ours = [point for point in metadata.entry_points(group=group) if point.value.startswith("andon.")]

    assert ours
    assert all(callable(point.load()) for point in ours)


@pytest.mark.parametrize("command", ["make demo", "make test"])
def test_the_readme_shows_the_two_commands(command: str) -> None:
    """A stranger needs no more than these."""
    assert command in (ROOT / "README.md").read_text()


def test_make_explains_every_target() -> None:
    """`make` alone lists what there is."""
    make = shutil.which("make")
    assert make is not None
    listing = subprocess.run([make, "-C", str(ROOT)], capture_output=True, text=True, check=True)  # noqa: S603

    assert set(re.findall(r"^  make ([a-z-]+)  +\S", listing.stdout, re.MULTILINE)) >= TARGETS


def test_ci_is_one_command() -> None:
    """`.ci/run` can be run as it is."""
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_the_licence_is_apache_2() -> None:
    """The text says what the metadata says."""
    text = (ROOT / "LICENSE").read_text()

    assert PROJECT["license"] == "Apache-2.0"
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (LOCK, "uv" + ".lock"),
        (LOCK, "console/package-lock" + ".json"),
        (MACHINE_PATH, "see /" + "home/someone"),
        (MACHINE_PATH, "file:///" + "Users/someone"),
        (REGISTRY, "--extra-index" + "-url"),
    ],
)
def test_the_patterns_find_what_they_look_for(pattern: re.Pattern[str], text: str) -> None:
    """A pattern that finds nothing would hold nothing."""
    assert pattern.search(text)
