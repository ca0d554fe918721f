"""Untrusted YAML files that would take long to read or exhaust the memory are refused in under a second."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from outbox_events.errors import ConfigurationError
from outbox_kit.pipeline import load_pipeline
from outbox_kit.pipeline.values_with_origins import MAX_LEVELS, parse_yaml


def doubling(item: str) -> str:
    """Return a chain of 30 anchors, each with two aliases of the previous anchor, which expands to 2^30 values."""
    lines = ["a0: &a0 {x: 1}", *(f"a{number}: &a{number} {item}" for number in range(1, 30))]
    return "\n".join(line.replace("PREVIOUS", f"*a{number - 1}") for number, line in enumerate(lines))


@contextmanager
def in_under_a_second() -> Iterator[None]:
    start = time.process_time()
    yield
    assert time.process_time() - start < 1


HOSTILE = {
    "aliases": (doubling("[PREVIOUS, PREVIOUS]"), ":2: aliases are not supported"),
    "merge keys": (doubling("{<<: [PREVIOUS, PREVIOUS]}"), ":2: aliases are not supported"),
    "an alias of itself": ("a: &a {b: *a}", ":1: aliases are not supported"),
    "an undefined alias": ("a: *secret", ":1: aliases are not supported"),
    "a mapping as a key": ("a: {{ env.NAME }}", ":1: not valid YAML: found unhashable key"),
    "flow levels": ("a: " + "[" * 20_000, f"nested over {MAX_LEVELS} levels"),
    "block levels": ("\n".join(f"{' ' * level}a:" for level in range(500)), f"nested over {MAX_LEVELS} levels"),
    "dashes": ("- " * 5000, f"nested over {MAX_LEVELS} levels"),
    "a sexagesimal number": ("a: 1" + ":1" * 20_000, "a number has over 40 digits"),
    "a sexagesimal fraction": ("a: 1" + ":1" * 500 + ":1.5", "a number has over 40 digits"),
    "many bytes": ("# " + "x" * 500_000, "larger than 500000 bytes"),
}


@pytest.mark.parametrize(("text", "message"), HOSTILE.values(), ids=HOSTILE)
def test_refuses_hostile_files(workspace: Path, text: str, message: str) -> None:
    path = workspace / "connectors" / "library.yaml"
    path.write_text(text, encoding="utf-8")
    with in_under_a_second(), pytest.raises(ConfigurationError) as caught:
        load_pipeline(path)
    assert message in caught.value.message
    assert str(path) in caught.value.message
    assert "secret" not in str(caught.value)
    assert caught.value.hint


def test_refuses_a_device(workspace: Path) -> None:
    path = workspace / "connectors" / "library.yaml"
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(ConfigurationError, match="not a regular file"):
        load_pipeline(path)


def test_reports_thousands_of_errors_quickly(workspace: Path) -> None:
    """The pipeline file and the environment that overrides it repeat 80 unknown keys 80 times each."""
    keys = ", ".join(f"k{number}: 1" for number in range(80))
    aggregates = "\n".join(f"  a{number}: {{{keys}}}" for number in range(80))
    path = workspace / "connectors" / "library.yaml"
    path.write_text(f"name: library\naggregates:\n{aggregates}\n", encoding="utf-8")
    overlay = aggregates.replace("\n", "\n  ")
    environment = path.parent / "environments" / "edited.yaml"
    environment.write_text(f"name: edited\npipeline:\n  aggregates:\n  {overlay}\n", encoding="utf-8")
    start = time.process_time()
    with pytest.raises(ConfigurationError, match=r"\.\.\. and \d{4} more"):
        load_pipeline(path, "edited")
    assert time.process_time() - start < 5


def test_parses_a_file_within_the_limits() -> None:
    node, data = parse_yaml("a: &x {k: 1}\nc: [{k: 1}, 1.5, '1:1:1', '*x']\n")
    assert node is not None
    assert data == {"a": {"k": 1}, "c": [{"k": 1}, 1.5, "1:1:1", "*x"]}
    assert parse_yaml("# nothing\n") == (None, None)
