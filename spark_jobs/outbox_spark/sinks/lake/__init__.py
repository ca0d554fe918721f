"""Code that Delta and Iceberg tables share: the guarded MERGE, ledger, quarantine, history, lease."""
