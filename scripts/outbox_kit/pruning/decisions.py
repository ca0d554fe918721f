"""Decision for each row of an aggregate: whether it is deletable, or why it remains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from outbox_kit.delivery.outbox_rows import StoredRow
from outbox_kit.delivery.proof import Proof

Reason = Literal["newest", "young", "unproven", "following"]


@dataclass
class RetainedRows:
    """Numbers of rows that remain, by reason.

    `unproven` rows are old but not proven. `following` rows would be deleted if no older row of their aggregate
    remained.
    """

    newest: int = 0
    young: int = 0
    unproven: int = 0
    following: int = 0

    def add(self, reason: Reason) -> None:
        setattr(self, reason, getattr(self, reason) + 1)


def decide(rows: Sequence[StoredRow], proof: Proof, *, keep_newest: bool) -> Iterator[tuple[StoredRow, Reason | None]]:
    """Yield each row of an aggregate, the oldest one first, with the reason why it remains; None if it is deletable.

    With `keep_newest` the last row remains unless it is the tombstone on the topic, because the aggregate is deleted.
    """
    newest = rows[-1] if keep_newest and not proof.is_tombstone(rows[-1]) else None
    must_remain = False
    for row, is_proven in zip(rows, proof.proven(rows), strict=True):
        reason: Reason | None = "following" if must_remain else None
        if not row.is_old:
            reason = "young"
        elif not is_proven:
            reason = "unproven"
        elif row is newest:
            reason = "newest"
        yield row, reason
        must_remain = must_remain or reason is not None
