"""Options of the running command that printed commands repeat."""

from __future__ import annotations

import pytest
from tests.remedies import commands_of

from outbox_events.errors import OutboxError
from outbox_kit.cli.console import commands_completed, completed, completed_checks
from outbox_kit.results.checks import Check, Status

OPTIONS = r"-p 'a \1/b.yaml' -e here"


def test_completes_only_commands_of_outbox_kit() -> None:
    remedy = "if `lost`, run `outbox apply --recover` and `select pg_reload_conf()`, then `outbox restart`"
    with commands_completed(OPTIONS):
        [check] = completed_checks([Check("postgres.slot", Status.FAIL, "none", "one", remedy)])
    assert check.remedy == (
        rf"if `lost`, run `outbox apply --recover {OPTIONS}` and `select pg_reload_conf()`, "
        rf"then `outbox restart {OPTIONS}`"
    )
    assert commands_of(check.remedy)[1:] == ["select pg_reload_conf()", f"outbox restart {OPTIONS}"]


@pytest.mark.parametrize("options", [OPTIONS, "-e here"])
def test_completes_a_command_only_once(options: str) -> None:
    with commands_completed("-p other.yaml -e there"), commands_completed(options):
        text = completed("run `outbox apply`, or `outbox apply -p a.yaml`")
        assert completed(text) == text == f"run `outbox apply {options}`, or `outbox apply -p a.yaml`"


def test_completes_the_hint_of_an_error() -> None:
    with pytest.raises(OutboxError) as caught, commands_completed(OPTIONS):
        raise OutboxError("`outbox apply` was interrupted", "run `outbox apply`")
    assert (caught.value.message, caught.value.hint) == (
        "`outbox apply` was interrupted",
        f"run `outbox apply {OPTIONS}`",
    )
    assert completed("run `outbox apply`") == "run `outbox apply`", "outside of a command"
