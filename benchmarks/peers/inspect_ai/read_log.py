"""Prints each sample's id and scores in the logs, as JSON; to be run by inspect_ai's own Python.

The log is a zip compressed with zstd, which other Pythons before 3.14 cannot read.
"""

import json
import sys

from inspect_ai.log import read_eval_log_sample_summaries

for log in sys.argv[1:]:
    rows = read_eval_log_sample_summaries(log)
    json.dump(
        [[row.id, [score.value for score in row.scores.values()]] for row in rows], sys.stdout
    )
    print()
