"""Find transactions that a broker completed without writing their markers, because of a defect of Kafka (KAFKA-20734).

Kafka 4.3 and 4.4 treat a partition without a leader as deleted. If the broker completes a transaction at this time, it
does not write the transaction's marker to the partition. The next marker of the same producer in this partition then
decides the outcome of the records. Until then, consumers with read_committed cannot read past them. A cluster with one
broker enters this state when the broker starts after it was killed: the previous registration expires, and all
partitions lose their leader.
"""

from __future__ import annotations

import re

from outbox_kit.stack.layout import Layout

SKIPPED = re.compile(
    r"Couldn't find leader endpoint for partitions (?:Hash)?Set\(([^)]*)\) while trying to send transaction markers "
    r"for (\S+), these"
)
# The transaction is not completed. The coordinator sends its markers again after it has loaded the transactions.
CANCELLED = re.compile(r"No longer the coordinator for (\S+) with coordinator epoch \d+; cancel appending")


def partitions_without_markers(layout: Layout, cell: str) -> list[str]:
    """Return the partitions, as TOPIC-NUMBER, to which the broker did not write a marker in a transaction of the cell.

    The names of the topics, connectors and producers of a cell contain the name of the cell.
    """
    log, is_of_cell = layout.log("kafka"), re.compile(rf"\b{re.escape(cell)}\b")
    files = sorted(log.parent.glob(f"{log.name}*"), reverse=True)  # the oldest first
    lines = [line for file in files for line in file.read_text(errors="replace").splitlines()]
    skipped: list[tuple[str, str]] = []
    for line in filter(is_of_cell.search, lines):
        if match := SKIPPED.search(line):
            skipped.append((match.group(2), match.group(1)))
        elif (match := CANCELLED.search(line)) and skipped and skipped[-1][0] == match.group(1):
            skipped.pop()
    return sorted({name for _, names in skipped for name in names.split(", ")})
