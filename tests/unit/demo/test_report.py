"""Result of a demo run: conditions of a match, JSON form and tables."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from outbox_kit.demo.compare_values import Comparison, DifferentRow
from outbox_kit.demo.report import DemoReport
from outbox_kit.demo.workload import WorkloadCounts

EQUAL = Comparison("book", "warehouse", 1200, 1200, 0, 0, 0, 0, (), (), (), ())
UNEQUAL = Comparison("book", "lake", 4, 4, 1, 1, 1, 1, ("k1",), ("k2",), ("k3",), (DifferentRow("k4", ("a", "b")),))
WORKLOAD = WorkloadCounts(2800, 200, 9, 4500, 480, {"author": 700, "book": 3800}, 2.5)


def report(*comparisons: Comparison) -> DemoReport:
    return DemoReport(
        workload=WORKLOAD,
        row_counts={"warehouse": {"book": 1200}},
        dead_letter_count=2,
        expected_dead_letter_count=2,
        seconds={"stack up": 12.34, "workload": 2.5},
        comparisons=list(comparisons),
    )


def test_match_requires_every_comparison() -> None:
    assert report(EQUAL, EQUAL).match
    assert not report(EQUAL, UNEQUAL).match


def test_empty_comparison_is_not_a_match() -> None:
    assert not report().match
    assert report().mismatches == ["no target was compared"]


def test_reports_mismatches() -> None:
    assert replace(report(EQUAL, UNEQUAL), dead_letter_count=7).mismatches == [
        UNEQUAL.summary(),
        "7 dead letters, expected 2",
    ]


@pytest.mark.parametrize("dead_letters", [0, 1, 3])
def test_match_requires_the_expected_dead_letters(dead_letters: int) -> None:
    assert not replace(report(EQUAL), dead_letter_count=dead_letters).match


@pytest.mark.parametrize(
    "comparison",
    [
        replace(EQUAL, missing_count=1),
        replace(EQUAL, unexpected_count=1),
        replace(EQUAL, duplicated_count=1),
        replace(EQUAL, different_count=1),
    ],
)
def test_any_difference_is_a_mismatch(comparison: Comparison) -> None:
    assert not comparison.match


def test_dict_contains_all_values_as_json() -> None:
    data = json.loads(json.dumps(report(EQUAL, UNEQUAL).to_dict()))
    assert data["match"] is False
    assert data["workload"]["transactions"] == 3000
    assert data["workload"]["events_by_aggregate"] == {"author": 700, "book": 3800}
    assert data["rows"] == {"warehouse": {"book": 1200}}
    assert (data["dead_letters"], data["dead_letters_expected"]) == (2, 2)
    assert data["seconds"] == {"stack up": 12.34, "workload": 2.5}
    assert [item["match"] for item in data["comparisons"]] == [True, False]
    assert data["comparisons"][1]["different"] == [{"key": "k4", "columns": ["a", "b"]}]


def test_empty_report_is_valid_json() -> None:
    assert json.loads(json.dumps(DemoReport().to_dict()))["workload"] is None
    assert DemoReport().tables() == []


def test_tables_have_one_cell_per_header() -> None:
    tables = report(EQUAL, UNEQUAL).tables()
    assert [table.title for table in tables] == [
        "Written",
        "Rows of source and targets",
        "Differences (the first of each kind)",
        "Time",
    ]
    assert all(len(row) == len(table.headings) for table in tables for row in table.rows)


def test_tables_list_differences() -> None:
    written, compared, differences, times = report(EQUAL, UNEQUAL).tables()
    assert ("transactions per second", "1,200") in written.rows
    assert ("dead letters (expected)", "2 (2)") in written.rows
    assert compared.rows[0] == ("warehouse.book", "1,200", "1,200", "0", "0", "0", "0")
    assert compared.rows[1][0] == "lake.book"
    assert any(count != "0" for count in compared.rows[1][3:])
    assert differences.rows == (
        ("lake", "book", "k1", "missing"),
        ("lake", "book", "k2", "unexpected"),
        ("lake", "book", "k3", "duplicated"),
        ("lake", "book", "k4", "differs in a, b"),
    )
    assert times.rows == (("stack up", "12.3"), ("workload", "2.5"))


def test_no_table_of_differences_for_equal_tables() -> None:
    assert [table.title for table in report(EQUAL).tables()] == ["Written", "Rows of source and targets", "Time"]


def test_measures_failed_steps() -> None:
    result = DemoReport()
    with result.step("first"):
        pass
    with pytest.raises(RuntimeError), result.step("second"):
        raise RuntimeError
    assert list(result.seconds) == ["first", "second"]
    assert all(seconds >= 0 for seconds in result.seconds.values())
