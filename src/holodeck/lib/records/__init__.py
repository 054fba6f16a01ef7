"""Records of runs: written while a run goes on, read to resume, to report and to grade again."""
