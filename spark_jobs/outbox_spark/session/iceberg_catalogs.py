"""Closes the Iceberg catalogs of a session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

CATALOG_PREFIX = "outbox_"
"""Prefix of the names of the catalogs that runs configure in their session."""
_HADOOP_CATALOG = "HadoopCatalog"


@contextmanager
def catalogs_closed(session: SparkSession) -> Iterator[None]:
    """Close the catalogs of runs that were loaded in the session at the end of `with`, and ignore errors.

    Otherwise clients of REST catalogs would refresh their tokens, and connections of JDBC catalogs would remain open,
    until the application ends.
    """
    try:
        yield
    finally:
        with suppress(Py4JError):  # the JVM may have ended, but the result or error of the run must be reported
            for catalog in _loaded_catalogs(session):
                # All Hadoop catalogs of the JVM share their locks, and closing one of them removes the locks of all.
                if catalog.getClass().getSimpleName() != _HADOOP_CATALOG:
                    catalog.close()


def _loaded_catalogs(session: SparkSession) -> Iterator[Any]:
    """Yield the loaded catalogs of runs, of type org.apache.iceberg.catalog.Catalog, without loading others."""
    jvm: Any = session._jvm
    manager = session._jsparkSession.sessionState().catalogManager()
    for name in manager.listCatalogs(jvm.scala.Option.empty()).mkString("\n").split("\n"):
        if name.startswith(CATALOG_PREFIX):
            yield manager.catalog(name).icebergCatalog()
