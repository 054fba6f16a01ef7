"""Object storage: one protocol, one adapter per product."""
