"""The terminal: colours, spinner, what is safe to print."""
