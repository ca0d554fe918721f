"""Servers and jars that the embedded stack and Spark need: the list of their files, their folder, and the download."""
