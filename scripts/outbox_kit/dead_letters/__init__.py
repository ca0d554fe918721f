"""Read, count and acknowledge the dead letters of the connector and of consumers. `replay` sends dead letters again."""
