"""The stack in containers, for component tests of services that use outbox-kit.

    with OutboxStack() as stack:
        stack.apply(Path("connectors/books.yaml"))
        add_book(stack.source_dsn, ...)

or, in a conftest.py, `pytest_plugins = ["outbox_kit.testing.fixtures"]` and the fixture `outbox_stack`.

Needs the extra `outbox-kit[testing]`, a container engine on this machine, and images: see docs/testing.md.
"""

from outbox_kit.testing.images import Images
from outbox_kit.testing.services import ConnectContainer, KafkaContainer, PostgresContainer, RegistryContainer
from outbox_kit.testing.stack import OutboxStack

__all__ = ["ConnectContainer", "Images", "KafkaContainer", "OutboxStack", "PostgresContainer", "RegistryContainer"]
