"""Find changes that another tool made to the live config, and that can drop, change or reorder records.

After such a change, the rendered config alone does not restore the states: they must be sent again.
"""

from __future__ import annotations

import re

from outbox_kit.connect.config_diff import FINGERPRINT_KEY, different_keys, fingerprint, was_edited

# Keys whose value cannot drop, change or reorder a record: it delays records, sends them twice, or stops the task.
# All other keys count as harmful, among them the keys of plugins that outbox-kit does not know.
HARMLESS_KEYS = re.compile(
    "|".join(
        (
            r"name|outboxkit\..+|tasks\.max|config\.action\.reload|custom\.metric\.tags",
            r"database\.(user|password|ssl[^.]*|tcpKeepAlive|query\.timeout\.ms)|connection\.validation\.timeout\.ms",
            r"slot\.(retry\.delay\.ms|max\.retries)|status\.update\.interval\.ms|xmin\.fetch\.interval\.ms",
            r"heartbeat\.interval\.ms|executor\.shutdown\.timeout\.ms|retriable\.restart\.connector\.wait\.ms",
            r"errors\.(log\..+|max\.retries|retry\.(timeout|delay\.max\.ms|delay\.initial\.ms))",
            r"poll\.interval\.ms|max\.batch\.size|max\.queue\.size(\.in\.bytes)?|query\.fetch\.size",
            # Without exactly-once, records can arrive twice, which readers recognize by the event id.
            r"exactly\.once\.support|transaction\.boundary(\.interval\.ms)?",
            r"producer\.override\.(client\.id|linger\.ms|batch\.size|buffer\.memory|compression\..+|max\.block\.ms)",
            r"producer\.override\.((request|delivery|transaction)\.timeout\.ms|max\.request\.size|metadata\..+)",
            r"producer\.override\.((sasl|ssl|socket|metrics|reconnect|retry)\..+|security\.protocol)",
            r"producer\.override\.(connections\.max\.idle\.ms|(send|receive)\.buffer\.bytes)",
        )
    )
)


def harmful_foreign_keys(
    desired: dict[str, str], actual: dict[str, str] | None, last_working: dict[str, str] | None
) -> list[str]:
    """Return the keys whose live value another tool wrote, and that can drop, change or reorder records.

    `last_working` is the lock file's config. Keys that differ only from `desired` do not count, because the files were
    changed after the last apply. If neither the lock file nor the fingerprint tells what outbox-kit wrote, return [].
    """
    if actual is None or actual.get(FINGERPRINT_KEY) == fingerprint(actual):
        return []
    written = last_working or (desired if was_edited(actual) else None)
    if written is None:
        return []
    keys = set(different_keys(desired, actual)) & set(different_keys(written, actual))
    return sorted(key for key in keys if not HARMLESS_KEYS.fullmatch(key))
