"""Run the stack in containers for component tests (docs/testing.md). Requires images and the extra `testing`.

In conftest.py, set `pytest_plugins = ["outbox_kit.testing.fixtures"]`, and use the fixture `outbox_stack` in tests.
"""

from outbox_events.extras import extra

with extra("outbox-kit[testing]"):
    from outbox_kit.testing.images import Images
    from outbox_kit.testing.services import ConnectContainer, KafkaContainer, PostgresContainer, RegistryContainer
    from outbox_kit.testing.stack import OutboxStack

__all__ = ["ConnectContainer", "Images", "KafkaContainer", "OutboxStack", "PostgresContainer", "RegistryContainer"]
