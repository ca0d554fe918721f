"""The report: sums over repetitions, HTML and Markdown."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest
from tests.unit.lab.drill.samples import deliveries_of, ledger_of, result_of

from outbox_lab.drill.ledger import Outcome
from outbox_lab.drill.receivers.effects import count_effects
from outbox_lab.drill.reporting.charts import delay_chart
from outbox_lab.drill.reporting.expected_loss import Estimate
from outbox_lab.drill.reporting.report import Cost, to_html, to_markdown
from outbox_lab.drill.reporting.summary import FaultEstimate, summarize

LEDGER = ledger_of(("a", 1, Outcome.COMMITTED), ("b", 2, Outcome.COMMITTED))
RESULTS = [
    result_of("cdc-exactly-once", "none", LEDGER, deliveries_of("a", "b")),
    result_of("cdc-exactly-once", "kill-connect", LEDGER, deliveries_of("b"), injections=4),
    result_of("cdc-exactly-once", "kill-connect", LEDGER, deliveries_of("a"), injections=6, repetition=2),
]


def test_repetitions_of_a_cell_are_added() -> None:
    [way] = summarize(RESULTS)
    assert (way.faults, way.counts["lost"]) == (10, 2)
    counts = [(cell.fault, cell.faults, cell.counts["lost"]) for cell in way.cells]
    assert counts == [("none", 0, 0), ("kill-connect", 10, 2)]


def test_a_way_that_loses_events_without_a_fault_has_no_loss_per_fault() -> None:
    faults = [result_of("polling-incrementing", fault, LEDGER, deliveries_of("a")) for fault in ("none", "kill-relay")]
    assert [cell.lost for way in summarize(faults) for cell in way.cells] == [None, None]
    assert "also without a fault" in to_markdown(faults)
    assert "also without a fault" in to_html(faults, Cost())
    assert "also without a fault" not in to_html(RESULTS, Cost())


def test_the_tables_of_the_cells_omit_counts_that_are_all_0() -> None:
    headings = [line for line in to_markdown(RESULTS).splitlines() if line.startswith("| fault |")]
    assert len(headings) == 1
    assert "| lost |" in headings[0]
    assert "| duplicated |" not in headings[0]


def test_a_broken_promise_is_marked() -> None:
    assert 'class="broken">2<' in to_html(RESULTS, Cost())
    assert 'class="broken">' not in to_html(RESULTS[:1], Cost()).partition("<h2>")[2]


def approx(mean: float, high: float) -> Any:  # noqa: ANN401 - compared with an Estimate
    """Return an estimate with tolerance."""
    return Estimate(pytest.approx(mean), pytest.approx(high, rel=1e-3))  # type: ignore[arg-type]


def test_losses_and_phantoms_are_estimated_for_each_kind_of_fault_and_load() -> None:
    load = {"rate": 60, "writers": 4}
    counts = {"lost_by_fault": (4, 1, *[0] * 8), "phantom_by_fault": (0,) * 10}
    kill = result_of("cdc", "kill-kafka", LEDGER, deliveries_of("a"), load=load, **counts)
    pause = result_of("cdc", "pause-kafka", LEDGER, deliveries_of("a", "b"), lost_by_fault=(0,) * 100, load=load)
    [way] = summarize([kill, pause])
    killed, paused = way.cells
    bound = 0.6296  # of 2 in 10
    assert killed.lost == FaultEstimate(approx(0.2, bound), approx(0.5, 4 * bound), 4)
    assert killed.phantom == FaultEstimate(approx(0, 0.3), approx(0, 0.3), 0)
    assert paused.lost == FaultEstimate(approx(0, 0.03), approx(0, 0.03), 0)
    assert (killed.load, paused.load) == ("60/s in 4 threads", "60/s in 4 threads")


def test_a_fault_that_was_injected_once_says_nothing_about_the_share_of_affected_faults() -> None:
    [way] = summarize([result_of("cdc", "kill-kafka", LEDGER, deliveries_of("a", "b"), lost_by_fault=(0,))])
    assert way.cells[0].lost == FaultEstimate(Estimate(0, 1), Estimate(0, 1), 0)


def test_missing_markers_are_no_loss_of_the_way() -> None:
    unmarked = result_of(
        "cdc", "kill-kafka", LEDGER, deliveries_of("a"), lost_by_fault=(1,), partitions_without_markers=("topic-0",)
    )
    assert summarize([unmarked])[0].cells[0].lost is None


def test_the_cost_of_a_year_is_faults_of_this_kind_by_loss_by_value() -> None:
    result = result_of("cdc", "kill-kafka", LEDGER, deliveries_of("a"), lost_by_fault=(2, 0))
    assert ">5 (" in to_html([result], Cost(value=5))
    assert ">2,000 (" in to_html([result], Cost(value=100, by_fault={"kill-kafka": 20}))


def test_a_report_names_commit_seed_and_machine() -> None:
    result = result_of("cdc", "none", LEDGER, deliveries_of("a", "b"), commit="abc123", machine="Linux, 2 processors")
    for text in (to_markdown([result]), to_html([result], Cost())):
        assert "Commit abc123, seed 1, measured on Linux, 2 processors." in text


def test_control_and_format_characters_are_escaped() -> None:
    result = result_of("cdc-exactly-once", "none", LEDGER, deliveries_of("a", "b"), note="\x07\x1b\u202eX")
    assert r"\x07\x1b\u202eX" in to_html([result], Cost())


def test_charts_are_well_formed_on_their_own() -> None:
    chart = ElementTree.fromstring(str(delay_chart(RESULTS[1])))  # noqa: S314 - our own text
    namespace = "{http://www.w3.org/2000/svg}"
    assert chart.find(f"{namespace}polyline") is not None
    assert [item.get("class") for item in chart.findall(f"{namespace}rect")] == ["fault"]


def test_markdown_has_one_row_per_way_and_fault() -> None:
    text = to_markdown(RESULTS)
    assert text.count("| cdc-exactly-once |") == 1
    assert "| kill-connect (10 times) |" in text


def test_effects_are_added_by_way_and_strategy() -> None:
    effects = (count_effects("processed-events", LEDGER, deliveries_of("a", "a"), deliveries_of("a", "b")),)
    results = [
        result_of("cdc", fault, LEDGER, deliveries_of("a", "b"), receiver_kills=3, effects=effects)
        for fault in ("none", "kill-kafka")
    ]
    assert "| cdc | processed-events | 6 | 4 | 4 | 2 | 2 | 0 | 0 | 0 | 2 |" in to_markdown(results)
    page = to_html(results, Cost())
    assert page.count('class="broken">2<') == 3
    assert "Effects of receivers" not in to_html(RESULTS, Cost())


def test_repeated_effects_without_deduplication_break_no_promise() -> None:
    effects = (count_effects("without-deduplication", LEDGER, deliveries_of("a", "b", "b"), deliveries_of("a", "b")),)
    page = to_html([result_of("cdc", "none", LEDGER, deliveries_of("a", "b"), effects=effects)], Cost())
    assert 'class="broken">1<' not in page
