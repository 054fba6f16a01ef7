"""What a run observed and decided: outcomes, turns, spans, and where they come from."""
