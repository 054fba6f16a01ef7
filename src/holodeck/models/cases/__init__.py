"""What a test case consists of: expectations, scripts, earlier messages."""
