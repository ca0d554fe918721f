"""Find the dangers of changes to a connector config. Packages for other systems define the dangers of their changes."""

from __future__ import annotations

import re
from collections.abc import Mapping

from outbox_kit.connect.config_diff import KeyChange

KEY_CHANGED = "records get a different key: states under the old keys are never compacted or deleted"
PARTITION_CHANGED = (
    "keys move to other partitions: their tombstones do not reach the old partition, where old states remain"
)
TOPIC_CHANGED = "records are written to another topic: the states on the old topic are no longer updated"
TYPE_REMOVED = "rows of this aggregate type become dead letters: the states on its topic are no longer updated"
DATABASE_CHANGED = "the LSN in the connector's offset is not valid in another database, or in a copy of the database"
# Patterns for config keys, each with the danger of changing a matching key. EventRouter and OutboxRouter name the key
# column in the same setting. The connector template outbox-postgres-chain sets the record key with ValueToKey.
DANGERS = (
    (
        re.compile(r"topic\.prefix"),
        f"{TOPIC_CHANGED}, and the connector does not find its offset, because Connect stores offsets by prefix",
    ),
    (re.compile(r"transforms\.[^.]+\.aggregate\..+\.topic"), TOPIC_CHANGED),
    (re.compile(r"transforms\.[^.]+\.table\.field\.event\.key"), KEY_CHANGED),
    (re.compile(r"transforms\.[^.]+\.(aggregate\..+\.)?partition\.field"), PARTITION_CHANGED),
    (re.compile(r"slot\.name"), "rows that only the previous slot retains are never sent to Kafka"),
    (re.compile(r"database\.(hostname|port|dbname)"), DATABASE_CHANGED),
)
VALUE_TO_KEY = re.compile(r"(transforms\.[^.]+)\.fields")
# After a change with one of these dangers, the topics no longer have the latest state of every aggregate.
STATES_AFFECTED = (KEY_CHANGED, PARTITION_CHANGED, TOPIC_CHANGED)
BACKFILL_HINT = "afterwards run `outbox backfill --restart`"


def config_dangers(changes: list[KeyChange], desired: dict[str, str], accepted: Mapping[str, str] | None = None) -> str:
    """Return one text that lists each dangerous change and its danger; empty if no change is dangerous.

    A recovery discards the offset, so that another database is not dangerous if it replaces the `accepted` values,
    which are those of the last apply. With other values, the connector may belong to another environment.
    """
    dangerous_changes = [
        (change, danger)
        for change in changes
        if (danger := _danger(change, desired))
        and (danger != DATABASE_CHANGED or accepted is None or change.before != accepted.get(change.key))
    ]
    dangers = [
        f"{change.key} {change.before or 'unset'} → {change.after or 'unset'}: {danger}"
        for change, danger in dangerous_changes
    ]
    if any(danger.startswith(STATES_AFFECTED) for _, danger in dangerous_changes):
        dangers.append(BACKFILL_HINT)
    return "; ".join(dangers)


def _danger(change: KeyChange, desired: dict[str, str]) -> str:
    match = VALUE_TO_KEY.fullmatch(change.key)
    if match and desired.get(f"{match[1]}.type", "").endswith(".ValueToKey"):
        return KEY_CHANGED
    danger = next((danger for pattern, danger in DANGERS if pattern.fullmatch(change.key)), "")
    if danger != TOPIC_CHANGED:
        return danger
    # A key without a previous value adds a route, which does not affect existing topics.
    return "" if change.before is None else TOPIC_CHANGED if change.after is not None else TYPE_REMOVED
