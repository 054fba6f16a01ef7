"""Models that judge: how they are reached, asked, believed and paid."""
