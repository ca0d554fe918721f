"""Dead letters: places, acknowledged offsets, and order among the records of their keys."""
