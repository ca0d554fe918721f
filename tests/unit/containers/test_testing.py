"""outbox_kit.testing without a container engine: settings, and errors with their hints."""

from __future__ import annotations

import re
from typing import NoReturn

import pytest
from docker.errors import ImageNotFound
from testcontainers.core.config import testcontainers_config

from outbox_events.errors import ConfigurationError
from outbox_kit.stack.errors import StackError
from outbox_kit.stack.services.jvm import environment_variables
from outbox_kit.testing import OutboxStack
from outbox_kit.testing import images as images_module
from outbox_kit.testing.images import provide_image, provide_ryuk

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


class FakeEngine:
    """An engine without images, which records the images that it is asked to pull."""

    def __init__(self) -> None:
        self.pulled: list[str] = []
        self.client = self.images = self

    def get(self, name: str) -> NoReturn:
        raise ImageNotFound(name)

    def pull(self, name: str) -> None:
        self.pulled.append(name)

    def close(self) -> None:
        pass


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    engine = FakeEngine()
    monkeypatch.setattr(images_module, "DockerClient", lambda: engine)
    monkeypatch.setattr(testcontainers_config, "ryuk_image", testcontainers_config.ryuk_image)
    monkeypatch.setattr(testcontainers_config, "_ryuk_disabled", False)
    return engine


def test_pulls_the_default_image_of_ryuk_by_digest(engine: FakeEngine) -> None:
    provide_ryuk()
    assert [bool(re.fullmatch(r"testcontainers/ryuk:[\d.]+@sha256:[0-9a-f]{64}", name)) for name in engine.pulled] == [
        True
    ]
    assert testcontainers_config.ryuk_image == engine.pulled[0]


def test_does_not_replace_a_configured_image_of_ryuk(engine: FakeEngine) -> None:
    testcontainers_config.ryuk_image = "registry.example.com/ryuk:1"
    provide_ryuk()
    assert engine.pulled == ["registry.example.com/ryuk:1"]
