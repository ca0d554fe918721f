"""Files of a project: what is written, what is kept, and aggregates that are added later."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import REPOSITORY
from tests.unit.init.tables import by_name, table

from outbox_events.errors import ConfigurationError
from outbox_kit.init.aggregates import AggregateTables, parse
from outbox_kit.init.project_files import Database, environment_file, new_files, project_name
from outbox_kit.init.project_folder import extended_pipeline, write_files
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
    text = environment_file(Database("db.example", 5432, "a: b", "o'neil # x"))
    assert "database: 'a: b'" in text
    assert 'password: "{{ env.OUTBOX_ADMIN_PASSWORD }}"' in text


def test_a_second_run_changes_nothing(pipeline: Path) -> None:
    files = new_files("shop", [aggregate("stock")], None, with_triggers=False)
    again = write_files(pipeline.parent.parent, files)
    assert (again.created, again.differing) == ([], {})
    assert set(again.unchanged) == set(files)


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


def test_adds_an_aggregate_and_keeps_comments(pipeline: Path) -> None:
    text = pipeline.read_text().replace("connector:\n", "# our connector\nconnector:\n")
    pipeline.write_text(text)
    name, extended = extended_pipeline(pipeline, [aggregate("review")])
    assert name == "shop"
    assert set(text.splitlines()) < set(extended.splitlines())
    pipeline.write_text(extended)
    loaded = load_pipeline(pipeline)
    assert list(loaded.aggregates) == ["stock", "review"]
    assert [entry.aggregate for entry in loaded.materializations] == ["stock", "review"]


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


@pytest.mark.parametrize(
    ("database", "expected"), [("shop", "shop"), ("Web-Shop", "web_shop"), ("9lives", "p_9lives"), ("äöü", "p____")]
)
def test_derives_the_name_from_the_database(database: str, expected: str) -> None:
    assert project_name(database) == expected
