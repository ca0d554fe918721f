"""Create the report of a drill as HTML and Markdown, with totals, expected loss and charts."""
