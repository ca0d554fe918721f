"""Documents: targets of links, named tests, code blocks that are part of the examples, and pip commands."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from outbox_kit import __version__

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
EXAMPLES = ROOT / "docs" / "examples"
# A path such as `tests/test_notes.py`, followed by a block with the content of the file.
FILE_BLOCK = re.compile(r"^`([\w./]+)`:\n\n```\w+\n(.*?)```$", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_link_has_a_target(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)\s#]+)(?:#[^)]*)?\)", text)
    missing = [item for item in targets if "://" not in item and not (page.parent / item).exists()]
    missing += [name for name in re.findall(r"`(tests/\w+/[\w/]+\.py(?:::\w+)?)`", text) if not names_a_test(name)]
    assert missing == []


def names_a_test(name: str) -> bool:
    """Return whether the file exists and, after `::`, whether it defines the function."""
    path, _, function = name.partition("::")
    return (ROOT / path).is_file() and f"def {function}" in (ROOT / path).read_text(encoding="utf-8")


def guide(*, without_files: bool = True) -> str:
    """Return docs/testing.md, by default without the blocks that contain an entire file."""
    text = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    return FILE_BLOCK.sub("", text) if without_files else text


def test_testing_guide_contains_every_file_of_the_smallest_project() -> None:
    notes = EXAMPLES / "notes"
    files = {path for path in notes.rglob("*.*") if path.suffix in {".yaml", ".avsc", ".py", ".toml"}}
    visible = {notes / name: code for name, code in FILE_BLOCK.findall(guide(without_files=False))}
    assert visible == {path: path.read_text(encoding="utf-8") for path in files}


def test_code_of_the_testing_guide_is_that_of_the_examples() -> None:
    code = "\n".join(path.read_text(encoding="utf-8") for path in sorted(EXAMPLES.glob("book_*/tests/*.py")))
    visible = [line for block in re.findall(r"```python\n(.*?)```", guide(), re.DOTALL) for line in block.splitlines()]
    assert len(visible) > 10
    assert [line for line in visible if line.strip() and not line.startswith("# ") and line not in code] == []


@pytest.mark.parametrize("name", ["github-actions.yml", "gitlab-ci.yml"])
def test_ci_examples_are_valid_yaml_and_install_the_files_of_this_release(name: str) -> None:
    text = (ROOT / "docs" / "examples" / "ci" / name).read_text(encoding="utf-8")
    assert yaml.safe_load(text)
    wheel = f"ci/outbox_kit-{__version__}-py3-none-any.whl"
    assert f"pip install --require-hashes -r ci/outbox-kit-requirements-{__version__}.txt" in text
    library = f"ci/outbox_events-{__version__}-py3-none-any.whl"
    assert f"pip install --no-deps {library} {wheel}" in text
    # The example's own package depends on both wheels, so they must be in the same command.
    assert f"pip install {library} '{wheel}[testing]' -e '.[test]'" in text


# The words of a `pip install` command up to its end.
PIP_INSTALL = re.compile(r"\bpip3? install((?:\s+(?!&&|\|)['\"]?[\w./~@:=\[\],<>-]+['\"]?)+)")
OWN_NAME = re.compile(r"^outbox[-_.](kit|events|spark|common|smt)(\[[\w,-]*\])?([=<>~!@].*)?$")


def installed_names(text: str) -> list[str]:
    """Return the words after `pip install` that pip would look up in a package index as packages of this project."""
    words = [word.strip("'\"`") for found in PIP_INSTALL.findall(text) for word in found.split()]
    return [word for word in words if OWN_NAME.match(word) and not word.endswith((".whl", ".tar.gz"))]


def test_recognizes_a_name_that_pip_would_look_up() -> None:
    assert installed_names("run `pip install outbox-kit[spark]` first") == ["outbox-kit[spark]"]
    assert installed_names("pip install -q 'outbox_kit==0.1.0'") == ["outbox_kit==0.1.0"]
    assert installed_names("pip\n  install --no-deps ./outbox_kit-V-py3-none-any.whl '/path/outbox-kit[testing]'") == []


def test_nothing_tells_to_install_the_project_from_a_package_index() -> None:
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = [ROOT / name for name in tracked.split("\0") if name and not name.startswith("tests/unit/project/")]
    texts = {path: path.read_text(encoding="utf-8", errors="replace") for path in paths if path.is_file()}
    assert {path: names for path, text in texts.items() if (names := installed_names(text))} == {}
