"""outbox-kit: deploy, verify and operate a transactional outbox."""

__version__ = "0.1.0"
