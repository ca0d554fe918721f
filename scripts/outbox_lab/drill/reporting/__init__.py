"""Report of a drill: totals, expected loss, charts, HTML and Markdown."""
