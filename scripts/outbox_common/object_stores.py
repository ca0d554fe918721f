"""Detect object stores on which a lake table can lose a commit if two drivers write to the table concurrently."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

_HADOOP_CATALOG = ".HadoopCatalog"
_S3_SCHEMES = ("s3", "s3a", "s3n")


def s3_scheme(location: str) -> str | None:
    """Return the scheme of a location in lower case if it is on S3, or else None."""
    scheme = urlsplit(location).scheme.lower()
    return scheme if scheme in _S3_SCHEMES else None


def hadoop_warehouse(catalog: Mapping[str, str]) -> str:
    """Return the warehouse of an Iceberg catalog of type `hadoop`, which renames files to commit, or else ''."""
    is_hadoop = catalog.get("type", "").lower() == "hadoop" or catalog.get("catalog-impl", "").endswith(_HADOOP_CATALOG)
    return catalog.get("warehouse", "") if is_hadoop else ""
