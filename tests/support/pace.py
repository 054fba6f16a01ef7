"""How much longer everything takes here than on a machine of its own."""

import os


def overload() -> float:
    """1 where the processors are free for the tests; else how many times they are taken."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
