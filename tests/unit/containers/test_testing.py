"""outbox_kit.testing without a container engine: settings, and errors with their hints."""

from __future__ import annotations

import pytest

from outbox_kit.errors import ConfigurationError, StackError
from outbox_kit.stack.properties import environment_variables
from outbox_kit.testing import OutboxStack
from outbox_kit.testing.images import provide_image

UNUSED_ADDRESS = "tcp://127.0.0.1:1"


def test_passes_settings_as_variables() -> None:
    settings: dict[str, str | int | bool] = {"a.b": True, "c_d": 1, "e-f": "x"}
    assert environment_variables("KAFKA_", settings) == {"KAFKA_A_B": "true", "KAFKA_C__D": "1", "KAFKA_E___F": "x"}


def test_reports_a_missing_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", UNUSED_ADDRESS)
    with pytest.raises(StackError, match=r"^no container engine responds: ") as caught:
        provide_image("outbox-kit/kafka")
    assert caught.value.hint == "start Docker, or set DOCKER_HOST"


def test_exception_text_contains_the_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", UNUSED_ADDRESS)
    with pytest.raises(StackError) as caught, OutboxStack():
        pass
    assert caught.value.__notes__ == [f"hint: {caught.value.hint}"]


def test_rejects_zero_workers() -> None:
    with pytest.raises(ConfigurationError, match="must be at least 1, not 0"):
        OutboxStack(workers=0)
