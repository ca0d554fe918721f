"""Dead letters of the connector and of consumers: read, count, acknowledge. `replay` sends them again."""
