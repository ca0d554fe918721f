"""Day-two commands: state, offsets, dead letters, aggregates without proof."""
