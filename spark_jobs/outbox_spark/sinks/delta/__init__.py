"""Store Delta tables by path, commit the progress together with the rows, and maintain the tables."""
