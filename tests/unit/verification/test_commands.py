"""Tests of verification/commands.py."""

from __future__ import annotations

from tests.remedies import commands_of

from outbox_kit.rules import Check, Status
from outbox_kit.verification import complete_commands


def check(remedy: str) -> Check:
    return Check("postgres.slot", Status.FAIL, "none", "one", remedy)


def test_completes_only_commands_of_outbox_kit() -> None:
    remedy = "if `lost`, run `outbox apply --recover` and `select pg_reload_conf()`, then `outbox restart`"
    completed = complete_commands([check(remedy)], r"-p 'a \1/b.yaml' -e here")[0].remedy
    assert completed == (
        r"if `lost`, run `outbox apply --recover -p 'a \1/b.yaml' -e here` and `select pg_reload_conf()`, "
        r"then `outbox restart -p 'a \1/b.yaml' -e here`"
    )
    assert commands_of(completed)[1:] == ["select pg_reload_conf()", r"outbox restart -p 'a \1/b.yaml' -e here"]
