"""Tests of repair_commands.py."""

from __future__ import annotations

from outbox_kit.pipeline import Pipeline
from outbox_kit.results.repair_commands import backfill_steps, recover_steps, resend_steps


def test_names_the_commands_that_write_the_states(library: Pipeline) -> None:
    assert backfill_steps(library, ["author", "book"]) == "run `outbox backfill --restart author book`"
    assert backfill_steps(library, ["author", "book"], pending=True) == "run `outbox backfill author book`"
    assert backfill_steps(library, []) == ""
    assert "`outbox backfill --acknowledge loan`" in backfill_steps(library, ["loan"])
    assert resend_steps(library, ["book"]).endswith(
        "`outbox backfill --restart book`; then run `outbox stuck --resend`"
    )


def test_services_send_the_states_of_messages(library: Pipeline) -> None:
    """`backfill` and `stuck` require an outbox table."""
    source = library.source.model_copy(update={"message_prefix": "outbox"})
    steps = resend_steps(library.model_copy(update={"source": source}), ["book"])
    assert steps == "have the service write every state of book again, then run `outbox backfill --acknowledge book`"


def test_a_recovery_names_all_types_of_the_pipeline(library: Pipeline) -> None:
    assert resend_steps(library) == resend_steps(library, sorted(library.aggregates))
    assert recover_steps(library) == f"run `outbox apply --recover`; then {resend_steps(library)}"
