"""Service that manages the authors and books of a library, and sends an event for each change."""
