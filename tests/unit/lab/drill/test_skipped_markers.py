"""Partitions to which the broker did not write a transaction marker, found in the broker's application log."""

from __future__ import annotations

from pathlib import Path

from outbox_kit.stack.layout import Layout
from outbox_lab.drill.skipped_markers import partitions_without_markers

LINE = (
    "[2026-11-28 07:56:36,508] INFO [Transaction Marker Channel Manager 1]: Couldn't find leader endpoint for "
    "partitions Set({partitions}) while trying to send transaction markers for {producer}, these partitions are likely "
    "deleted already and hence can be skipped (kafka.coordinator.transaction.TransactionMarkerChannelManager)\n"
)


def test_finds_the_partitions_in_all_logs_of_the_broker(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.logs.mkdir(parents=True)
    log = layout.log("kafka")
    log.write_text(
        "started\n" + LINE.format(partitions="cell_1.account-1, cell_1.account-0", producer="cell_1-writer-2")
    )
    log.with_name(f"{log.name}.1").write_text(
        LINE.replace("Set(", "HashSet(").format(partitions="offsets-0", producer="connector-cell_1-0")
        + LINE.format(partitions="cell_11.account-2", producer="cell_11-writer-2")
    )
    assert partitions_without_markers(layout, "cell_1") == ["cell_1.account-0", "cell_1.account-1", "offsets-0"]
    assert partitions_without_markers(layout, "cell_2") == []


def test_ignores_a_transaction_that_the_broker_does_not_complete(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.logs.mkdir(parents=True)
    layout.log("kafka").write_text(
        LINE.format(partitions="cell_1.account-1", producer="cell_1-writer-2")
        + "INFO No longer the coordinator for cell_1-writer-2 with coordinator epoch 62; cancel appending ...\n"
    )
    assert partitions_without_markers(layout, "cell_1") == []
