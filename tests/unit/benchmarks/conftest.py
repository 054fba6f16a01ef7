import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))  # its files are scripts
sys.path.append(str(Path(__file__).parents[3] / "benchmarks" / "mutants"))
