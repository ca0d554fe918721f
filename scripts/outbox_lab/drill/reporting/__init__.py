"""Report of a drill: sums, expected loss, charts, HTML and Markdown."""
