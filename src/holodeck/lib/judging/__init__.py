"""Judge models, and how well a judge agrees with people."""
