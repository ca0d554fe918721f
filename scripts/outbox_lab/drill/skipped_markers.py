"""Find transactions that a broker completed without writing their markers, because of a defect of Kafka (KAFKA-20734).

Kafka 4.3 and 4.4 treat a partition without a leader as deleted. If the broker completes a transaction at this time, it
does not write the transaction's marker to the partition. The next marker of the same producer then decides the outcome
of the records. Until then, consumers with read_committed cannot read past them. A broker without replicas causes this
state when it starts after it was killed: its previous registration expires, and its partitions lose their leader.
"""

from __future__ import annotations

import re

from outbox_kit.stack.layout import Layout

SKIPPED = re.compile(
    r"Couldn't find leader endpoint for partitions Set\(([^)]*)\) while trying to send transaction markers"
)


def partitions_without_markers(layout: Layout, cell: str) -> list[str]:
    """Return the partitions, as TOPIC-NUMBER, to which the broker did not write a marker in a transaction of the cell.

    The names of the topics, connectors and producers of a cell contain the name of the cell.
    """
    log, is_of_cell = layout.log("kafka"), re.compile(rf"\b{re.escape(cell)}\b")
    lines = [line for file in log.parent.glob(f"{log.name}*") for line in file.read_text(errors="replace").splitlines()]
    matches = [match for line in lines if (match := SKIPPED.search(line)) and is_of_cell.search(line)]
    return sorted({name for match in matches for name in match.group(1).split(", ")})
