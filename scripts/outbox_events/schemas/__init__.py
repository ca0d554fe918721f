"""Parse Avro schemas, and read them from schema registries."""
