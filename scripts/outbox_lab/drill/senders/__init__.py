"""Define the senders with which writers send the events of their transactions."""
