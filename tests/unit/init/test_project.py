"""Files of a project: what is written, what is kept, and aggregates that are added later."""

from __future__ import annotations

import difflib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.conftest import REPOSITORY
from tests.unit.init.tables import by_name, column, table

from outbox_events.errors import ConfigurationError
from outbox_kit.init.aggregates import AggregateTables, parse
from outbox_kit.init.project_files import aggregate_files, environment_file, new_files, project_name
from outbox_kit.init.project_folder import extended_pipeline, write_files
from outbox_kit.init.source_database import SourceAddress
from outbox_kit.pipeline import Columns, Source
from outbox_kit.pipeline.loading import load_pipeline


def aggregate(name: str) -> AggregateTables:
    return parse([f"{name}=shop.{name}"], by_name(table(name)))[0]


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    """A project with one aggregate."""
    write_files(tmp_path, new_files("shop", [aggregate("stock")], None, with_triggers=False))
    return tmp_path / "connectors" / "shop.yaml"


def test_the_environment_file_of_the_stack_is_that_of_the_example() -> None:
    assert environment_file(None) == (REPOSITORY / "connectors" / "environments" / "local.yaml").read_text()


def test_values_of_the_database_are_quoted() -> None:
    text = environment_file(SourceAddress("db.example", 5432, "a: b", "o'neil # x", {"sslmode": "require"}))
    values = yaml.safe_load(text)["source"]
    assert (values["database"], values["admin"]["user"], values["sslmode"]) == ("a: b", "o'neil # x", "require")
    assert 'password: "{{ env.OUTBOX_ADMIN_PASSWORD }}"' in text


def test_a_second_run_changes_nothing(pipeline: Path) -> None:
    files = new_files("shop", [aggregate("stock")], None, with_triggers=False)
    again = write_files(pipeline.parent.parent, files)
    assert (again.created, again.differing) == ([], {})


def test_names_that_yaml_reads_as_other_values_are_quoted(tmp_path: Path) -> None:
    write_files(tmp_path, new_files("on", [aggregate("no")], None, with_triggers=False))
    loaded = load_pipeline(tmp_path / "connectors" / "on.yaml")
    assert (loaded.name, list(loaded.aggregates), loaded.materializations[0].table) == ("on", ["no"], "no")


@pytest.mark.parametrize("kind", ["folder", "not-utf8", "dangling-link", "file-as-folder"])
def test_writes_nothing_if_a_file_cannot_be_read_or_written(tmp_path: Path, kind: str) -> None:
    blocked = tmp_path / (".gitignore" if kind != "file-as-folder" else "sql")
    if kind == "folder":
        blocked.mkdir()
    elif kind == "not-utf8":
        blocked.write_bytes(b"\xff")
    elif kind == "dangling-link":
        blocked.symlink_to(tmp_path.parent / "outside")
    else:
        blocked.touch()
    with pytest.raises(ConfigurationError, match=str(blocked)):
        write_files(tmp_path, new_files("shop", [aggregate("stock")], None, with_triggers=False))
    assert list(tmp_path.iterdir()) == [blocked]
    assert not (tmp_path.parent / "outside").exists()


def test_shows_the_difference_to_a_file_that_was_edited(pipeline: Path) -> None:
    edited = pipeline.read_text().replace("partitions: 4 ", "partitions: 12")
    pipeline.write_text(edited)
    files = new_files("shop", [aggregate("stock"), aggregate("review")], None, with_triggers=False)
    again = write_files(pipeline.parent.parent, files)
    assert pipeline.read_text() == edited
    (difference,) = (again.differing[path] for path in again.differing if path.name == "shop.yaml")
    assert "-    partitions: 12" in difference
    assert "+  review:" in difference
    assert Path("schemas/review.avsc") in again.created


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_adds_an_aggregate_and_changes_no_line(pipeline: Path, line_end: str) -> None:
    text = pipeline.read_text().replace("connector:\n", "# our connector\nconnector:\n")
    pipeline.write_bytes(text.replace("\n", line_end).encode())
    before, extended = extended_pipeline(pipeline, [aggregate("review")])
    assert before.name == "shop"
    assert "".join(line for line in extended.splitlines(keepends=True) if line_end not in line) == ""
    pipeline.write_bytes(extended.encode())
    loaded = load_pipeline(pipeline)
    assert list(loaded.aggregates) == ["stock", "review"]
    assert [entry.aggregate for entry in loaded.materializations] == ["stock", "review"]
    steps = difflib.ndiff(text.splitlines(), extended.replace(line_end, "\n").splitlines())
    assert [step for step in steps if step[0] in "-?"] == []
    assert "# our connector\nconnector:" in extended.replace(line_end, "\n")


def test_an_entry_at_the_end_of_the_file_keeps_its_settings(pipeline: Path) -> None:
    text = pipeline.read_text()
    start, end = text.index("aggregates:"), text.index("connector:")
    moved = text[:start] + text[end:] + "\n" + text[start:end].rstrip() + "\n    compatibility: FULL"
    pipeline.write_text(moved)
    pipeline.write_text(extended_pipeline(pipeline, [aggregate("review")])[1])
    levels = {name: entry.compatibility for name, entry in load_pipeline(pipeline).aggregates.items()}
    assert levels == {"stock": "FULL", "review": "BACKWARD"}


@pytest.mark.parametrize("end", ["", "\n", "\n\n# the end\n"])
def test_adds_an_aggregate_without_a_section_of_materializations(pipeline: Path, end: str) -> None:
    text = pipeline.read_text()
    pipeline.write_text(text[: text.index("materializations:")].rstrip() + end)
    pipeline.write_text(extended_pipeline(pipeline, [aggregate("review")])[1])
    assert [entry.aggregate for entry in load_pipeline(pipeline).materializations] == ["review"]


def test_refuses_to_add_an_aggregate_twice(pipeline: Path) -> None:
    with pytest.raises(ConfigurationError, match="already contains the aggregate stock"):
        extended_pipeline(pipeline, [aggregate("stock")])


def test_refuses_to_edit_a_pipeline_in_another_form(pipeline: Path) -> None:
    text = pipeline.read_text()
    start, end = text.index("aggregates:"), text.index("connector:")
    pipeline.write_text(f"{text[:start]}aggregates: {{stock: {{schema: schemas/stock.avsc}}}}\n{text[end:]}")
    before = pipeline.read_text()
    with pytest.raises(ConfigurationError, match="cannot add aggregates") as caught:
        extended_pipeline(pipeline, [aggregate("review")])
    assert "schema: schemas/review.avsc" in caught.value.hint
    assert pipeline.read_text() == before


def test_triggers_write_to_the_outbox_table_of_the_pipeline() -> None:
    source = Source(table="app.events", publication="p", slot="s")
    (text,) = (
        text for path, text in aggregate_files("shop", aggregate("stock"), source).items() if "trig" in path.name
    )
    assert 'insert into "app"."events" (' in text


@pytest.mark.parametrize(
    "source",
    [
        Source(publication="p", slot="s", message_prefix="outbox"),
        Source(publication="p", slot="s", columns=Columns(payload="state")),
    ],
)
def test_refuses_triggers_for_another_kind_of_outbox(source: Source) -> None:
    with pytest.raises(ConfigurationError, match="requires an outbox table"):
        aggregate_files("shop", aggregate("stock"), source)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"has_heirs": True}, "other tables inherit"),
        ({"columns": (column("id", "citext", is_builtin=False),)}, "has type citext"),
    ],
)
def test_refuses_triggers_that_would_miss_changes(change: dict[str, Any], problem: str) -> None:
    (entry,) = parse(["stock=shop.stock"], by_name(replace(table("stock"), **change)))
    with pytest.raises(ConfigurationError, match=problem):
        aggregate_files("shop", entry, Source(publication="p", slot="s"))


@pytest.mark.parametrize(
    ("database", "expected"), [("shop", "shop"), ("Web-Shop", "web_shop"), ("9lives", "p_9lives"), ("äöü", "p____")]
)
def test_derives_the_name_from_the_database(database: str, expected: str) -> None:
    assert project_name(database) == expected
