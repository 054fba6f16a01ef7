"""The wire tap: a proxy on loopback that reads what an agent and its models say to each other."""
