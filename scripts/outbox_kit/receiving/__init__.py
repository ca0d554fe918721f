"""Library for services that receive events and apply each of them once. See docs/receiving.md."""
