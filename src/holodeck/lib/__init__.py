"""What the commands and the public APIs are made of."""
