"""Keep the latest state of each aggregate of a compacted topic in memory. See docs/latest-state.md."""
