"""The nouns: frozen data, no I/O."""
