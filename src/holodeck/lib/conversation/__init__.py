"""The conversation engine: who speaks when, who gets which messages, and how it ends."""
