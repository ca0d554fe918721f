"""The deployed worked example, as in the tests of operations."""

from tests.unit.operations.conftest import connect, deployment, server

__all__ = ["connect", "deployment", "server"]
