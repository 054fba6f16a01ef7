"""Choosing what runs: filters, order and shards over the flat list of an agent's cases."""
