"""The deployed worked example of the tests of operations."""

from tests.unit.operations.conftest import connect, deployment, server

__all__ = ["connect", "deployment", "server"]
