"""The one thin client for chat completions, which agents, judges and simulated users share."""
