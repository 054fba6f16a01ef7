"""How good a judge is: labels, agreement, and whether it may decide."""
