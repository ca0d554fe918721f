"""The steps of runs: read, reduce, decode, write, compare and repair."""
