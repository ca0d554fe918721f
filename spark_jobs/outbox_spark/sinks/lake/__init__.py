"""Provide what Delta and Iceberg tables share: version-checked MERGE, ledger, quarantine, history mode and lease."""
