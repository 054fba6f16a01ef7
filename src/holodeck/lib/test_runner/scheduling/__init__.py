"""Which cases run when, how often, and when a run stops."""
