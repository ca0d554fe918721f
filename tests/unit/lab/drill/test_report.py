"""The report: sums over repetitions, HTML and Markdown."""

from __future__ import annotations

from xml.etree import ElementTree

from tests.unit.lab.drill.samples import deliveries_of, ledger_of, result_of

from outbox_lab.drill.ledger import Outcome
from outbox_lab.drill.receivers.effects import count_effects
from outbox_lab.drill.reporting.charts import delay_chart
from outbox_lab.drill.reporting.report import Cost, to_html, to_markdown
from outbox_lab.drill.reporting.summary import summarize

LEDGER = ledger_of(("a", 1, Outcome.COMMITTED), ("b", 2, Outcome.COMMITTED))
RESULTS = [
    result_of("cdc-exactly-once", "none", LEDGER, deliveries_of("a", "b")),
    result_of("cdc-exactly-once", "kill-connect", LEDGER, deliveries_of("b"), injections=4),
    result_of("cdc-exactly-once", "kill-connect", LEDGER, deliveries_of("a"), injections=6, repetition=2),
]


def test_repetitions_of_a_cell_are_added() -> None:
    [way] = summarize(RESULTS)
    assert way.loss is not None
    assert (way.faults, way.counts["lost"], way.loss.mean) == (10, 2, 0.2)
    counts = [(cell.fault, cell.faults, cell.counts["lost"]) for cell in way.cells]
    assert counts == [("none", 0, 0), ("kill-connect", 10, 2)]


def test_a_way_that_loses_events_without_a_fault_has_no_loss_per_fault() -> None:
    faults = [result_of("polling-incrementing", fault, LEDGER, deliveries_of("a")) for fault in ("none", "kill-relay")]
    assert [way.loss for way in summarize(faults)] == [None]
    assert "also without a fault" in to_markdown(faults)
    assert "also without a fault" in to_html(faults, Cost())
    assert "also without a fault" not in to_html(RESULTS, Cost())


def test_a_broken_promise_is_marked() -> None:
    assert 'class="broken">2<' in to_html(RESULTS, Cost())
    assert 'class="broken">' not in to_html(RESULTS[:1], Cost()).partition("<h2>")[2]


def test_the_cost_of_a_year_is_faults_by_loss_by_value() -> None:
    assert ">200 (" in to_html(RESULTS, Cost(faults_per_year=10, value=100))


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
    effects = (count_effects("processed-events", LEDGER, deliveries_of("a", "a")),)
    results = [
        result_of("cdc", fault, LEDGER, deliveries_of("a", "b"), receiver_kills=3, effects=effects)
        for fault in ("none", "kill-kafka")
    ]
    assert "| cdc | processed-events | 6 | 4 | 4 | 2 | 2 | 0 | 0 | 0 |" in to_markdown(results)
    page = to_html(results, Cost())
    assert page.count('class="broken">2<') == 2
    assert "Effects of receivers" not in to_html(RESULTS, Cost())


def test_repeated_effects_without_deduplication_break_no_promise() -> None:
    effects = (count_effects("without-deduplication", LEDGER, deliveries_of("a", "b", "b")),)
    page = to_html([result_of("cdc", "none", LEDGER, deliveries_of("a", "b"), effects=effects)], Cost())
    assert 'class="broken">1<' not in page
