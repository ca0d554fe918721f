"""Questions before a change: the environment that they name, and the answers that they accept."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import typer
from tests.unit.fake_kafka import FakeKafka

from outbox_events.errors import ConfigurationError, RefusedError
from outbox_kit.cli.confirmation import confirm, confirm_names, describe_environment, require_names
from outbox_kit.cli.options import CommonOptions
from outbox_kit.deployment import Deployment

REGISTRY = "registry http://registry.example.internal/apis/ccompat/v7"
PLACE = f"environment fixed (database library at db.example.internal:5433, Kafka cluster cluster-1, {REGISTRY})"
Type = Callable[[str], None]


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def deployment(deployed: Callable[..., Deployment], monkeypatch: pytest.MonkeyPatch) -> Deployment:
    monkeypatch.setattr(Deployment, "kafka", FakeKafka({}))
    return deployed()


@pytest.fixture
def enter(monkeypatch: pytest.MonkeyPatch) -> Type:
    """Return a function that sets what the user enters at the terminal."""
    return lambda text: monkeypatch.setattr(sys, "stdin", _Terminal(text + "\n"))


def options(*, yes: bool = False) -> CommonOptions:
    return CommonOptions(Path("library.yaml"), "fixed", yes=yes)


def test_question_names_environment_database_and_cluster(
    deployment: Deployment, enter: Type, capsys: pytest.CaptureFixture[str]
) -> None:
    enter("y")
    confirm(options(), deployment, "Make 2 changes", hint="")
    assert f"Make 2 changes in {PLACE}?" in capsys.readouterr().err
    enter("library@fixed")
    confirm_names(deployment, "Delete 7 objects", hint="")
    assert f"Delete 7 objects in {PLACE}? To confirm, enter library@fixed" in capsys.readouterr().err


def test_a_question_cannot_control_the_terminal(
    deployment: Deployment, enter: Type, capsys: pytest.CaptureFixture[str]
) -> None:
    for question in (confirm_names, partial(confirm, options())):
        enter("n")
        with pytest.raises((RefusedError, typer.Exit)):
            question(deployment, "Delete \x1b[2J\nforged", hint="")
        assert r"Delete \x1b[2J\nforged in environment" in capsys.readouterr().err


@pytest.mark.parametrize("answer", ["n", "", "no"])
def test_a_declined_question_exits_with_1(deployment: Deployment, enter: Type, answer: str) -> None:
    enter(answer)
    with pytest.raises(typer.Exit) as caught:
        confirm(options(), deployment, "Make 2 changes", hint="")
    assert caught.value.exit_code == 1


@pytest.mark.parametrize("answer", ["y", "yes", "library", "Library@fixed", "fixed", "library@production"])
def test_another_name_is_refused(deployment: Deployment, enter: Type, answer: str) -> None:
    enter(answer)
    with pytest.raises(RefusedError, match="expected 'library@fixed'"):
        confirm_names(deployment, "Delete 7 objects", hint="")
    with pytest.raises(RefusedError, match=f"found '{answer}'; nothing was changed"):
        require_names(deployment, answer)


def test_requires_an_option_without_a_terminal(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(ConfigurationError, match="--yes is required"):
        confirm(options(), deployment, "Make 2 changes", hint="")
    confirm(options(yes=True), deployment, "Make 2 changes", hint="")
    with pytest.raises(ConfigurationError, match="--confirm PIPELINE@ENVIRONMENT"):
        confirm_names(deployment, "Delete 7 objects", hint="")


def test_names_the_brokers_if_kafka_does_not_respond(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, free_port: int
) -> None:
    monkeypatch.setattr(FakeKafka, "cluster_id", _unreachable)
    assert f"Kafka cluster at 127.0.0.1:{free_port}, id unknown" in describe_environment(deployment)


def _unreachable(_: FakeKafka) -> str:
    raise RefusedError("no response")
