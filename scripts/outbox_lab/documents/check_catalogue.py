"""List all checks of `verify` in the order of the report."""

from __future__ import annotations

from typing import Any

from outbox_kit.connect import checks as connect_checks
from outbox_kit.kafka import checks as kafka_checks
from outbox_kit.postgres import checks as postgres_checks
from outbox_kit.postgres import slot_checks
from outbox_kit.registry import checks as registry_checks
from outbox_kit.results.checks import Rule
from outbox_kit.verification import canary, cross_checks, progress_checks, recent_rows, state_checks

SECTIONS: list[tuple[str, list[Any]]] = [
    ("Source database", [*postgres_checks.RULES, *slot_checks.RULES]),
    ("Kafka", kafka_checks.RULES),
    ("Schema registry", registry_checks.RULES),
    ("Kafka Connect", connect_checks.RULES),
    ("Consistency between systems", cross_checks.RULES),
    ("Progress between two samples", progress_checks.RULES),
    ("Canary", canary.RULES),
    ("Newest outbox rows", recent_rows.RULES),
    ("States", state_checks.RULES),
]
RULES: list[Rule[Any]] = [rule for _, rules in SECTIONS for rule in rules]
IDS = [rule.id for rule in RULES]
# Ids of the checks that `verify` runs if --states is not given.
DEFAULT_IDS = IDS[: -len(state_checks.RULES)]
