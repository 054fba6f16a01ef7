"""Threads, event loops and processes: starting them, ending them, and waiting for them."""
