"""The short judge on the embedded 1.5B model, for real: it tells good answers from bad ones."""

import json

import pytest

from fakes import run_cli
from holodeck.lib.local_models.store import ModelStore
from holodeck.lib.support.environment import cache_dir

MODEL = "qwen2.5-coder-1.5b-instruct"


@pytest.mark.large_model
def test_the_embedded_model_tells_the_labelled_good_answers_from_the_bad_ones(tmp_path):
    if ModelStore(cache_dir()).path_of(MODEL) is None:
        pytest.skip("its weights are not here; scripts/models pulls them")

    ran = run_cli(
        "judge", "check", "--model", f"local/{MODEL}", "--quick", "--json", "check.json",
        cwd=tmp_path, timeout=1800,
    )  # fmt: skip

    assert ran.code == 0, ran.stderr
    found = json.loads((tmp_path / "check.json").read_text())
    assert found["area_under_curve"] >= 0.99
    assert found["accuracy"]["value"] >= 0.95
    assert found["kappa"] >= 0.9
