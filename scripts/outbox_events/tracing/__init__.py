"""Continue traces from the sender of an event to its handlers, with W3C Trace Context headers."""
