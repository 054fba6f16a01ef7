"""Vector stores: one protocol, one adapter per product."""
