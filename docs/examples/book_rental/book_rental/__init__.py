"""Service that rents the books of the book management to readers."""
