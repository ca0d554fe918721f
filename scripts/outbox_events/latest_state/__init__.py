"""Keep the latest state of each aggregate in a compacted topic in memory. See docs/latest-state.md."""
