"""How the turns of a case are taken, from a script or with a simulated user."""
