"""outbox-kit: deploys, proves and drains a transactional outbox."""

__version__ = "0.1.0"
