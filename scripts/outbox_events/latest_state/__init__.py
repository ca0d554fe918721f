"""Latest state of each aggregate of a compacted topic, in the memory of a service. See docs/latest-state.md."""
