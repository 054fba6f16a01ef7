"""How good a judge is: labels of people, looks at them, and whether it may decide."""
