"""The conversation engine: who speaks when, what everybody hears, and how it ends."""
