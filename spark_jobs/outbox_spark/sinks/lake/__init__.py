"""Code that Delta and Iceberg tables share: the version-checked MERGE, ledger, quarantine, history, lease."""
