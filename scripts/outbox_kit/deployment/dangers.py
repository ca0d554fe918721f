"""Which changes can lose something although the system itself would make them without a word."""

from __future__ import annotations

import re
from dataclasses import replace

from outbox_kit.changes import Change

# EventRouter and OutboxRouter name the column so; the classic chain lists it in ValueToKey.
KEY = re.compile(r"transforms\.[^.]+\.table\.field\.event\.key")
PARTITION = re.compile(r"transforms\.[^.]+\.(aggregate\..+\.)?partition\.field")
ROUTE = re.compile(r"transforms\.[^.]+\.aggregate\..+\.topic|topic\.prefix")
KEY_DANGER = "records get another key: states under the old keys stay for ever, and their tombstones never come"
PARTITION_DANGER = "keys move to other partitions: tombstones miss the old one, and old states stay there"
ROUTE_DANGER = "records go to another topic: the states on the old one stay as they are"
AGAIN = "write the newest state of every aggregate again afterwards"


def of_database(change: Change) -> Change:
    """A publication or slot that was there before and is made again."""
    kind = change.object.split()[0]
    if kind not in ("slot", "publication"):
        return change
    danger = f"a new {kind} starts now: rows since the connector's last position do not reach Kafka by themselves"
    return replace(change, danger=f"{danger}; {AGAIN}")


def of_connector(change: Change, desired: dict[str, str], live: dict[str, str] | None) -> Change:
    """A connector whose records get another key, partition or topic."""
    if live is None or not change.object.startswith("connector "):
        return change
    found = []
    for key in sorted(desired.keys() | live.keys()):
        if desired.get(key) == live.get(key):
            continue
        words = _danger(key, desired)
        # A route that was not there before takes nothing away from an old one.
        if words and (key in live or words != ROUTE_DANGER):
            found.append(f"{key} {live.get(key, 'unset')} → {desired.get(key, 'unset')}: {words}")
    return replace(change, danger=f"{'; '.join(found)}; {AGAIN}") if found else change


def _danger(key: str, desired: dict[str, str]) -> str:
    if KEY.fullmatch(key) or (_of_value_to_key(key, desired) and key.endswith(".fields")):
        return KEY_DANGER
    if PARTITION.fullmatch(key):
        return PARTITION_DANGER
    return ROUTE_DANGER if ROUTE.fullmatch(key) else ""


def _of_value_to_key(key: str, desired: dict[str, str]) -> bool:
    step = key.rpartition(".")[0]
    return desired.get(f"{step}.type", "").endswith(".ValueToKey")
