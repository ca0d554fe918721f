"""The stack in containers, for component tests of services (docs/testing.md). Requires the extra `testing` and images.

In a conftest.py: `pytest_plugins = ["outbox_kit.testing.fixtures"]` and the fixture `outbox_stack`.
"""

from outbox_kit.testing.images import Images
from outbox_kit.testing.services import ConnectContainer, KafkaContainer, PostgresContainer, RegistryContainer
from outbox_kit.testing.stack import OutboxStack

__all__ = ["ConnectContainer", "Images", "KafkaContainer", "OutboxStack", "PostgresContainer", "RegistryContainer"]
