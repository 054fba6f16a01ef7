"""One slip in a file whose agent has one fault: it stays red, or is told of.

The projects, the slips and the rules stand in `tests/mutants`; `scripts/mutants` runs thousands.
"""

import pytest
import yaml

from mutants.generator import sample
from mutants.legitimate import without
from mutants.mutant import Mutant
from mutants.once_green import ONCE_GREEN
from mutants.projects import PROJECTS
from mutants.projects_checks import REPEATED
from mutants.projects_suites import CONFIG
from mutants.study import study

SLIPS_EACH, SEED = 4, 11
EACH_PROJECT = pytest.mark.parametrize("project", PROJECTS, ids=lambda project: project.name)


@pytest.fixture(scope="module")
def running():
    with study() as running:
        yield running


@EACH_PROJECT
def test_a_project_is_red_for_one_reason(running, project):
    """Without the check that finds the fault, all that is left passes, if anything is left."""
    check = project.deciding[0]
    if not check.file.endswith((".yaml", ".yml")):
        return
    tree = without(yaml.safe_load(project.files[check.file]), check.path)
    content = yaml.safe_dump(tree, sort_keys=False).encode()

    ran = running.run(project, Mutant(project.name, check.file, "remove", "", content))

    assert ran.code in {0, 5}, ran.stdout + ran.stderr


@pytest.mark.parametrize("project", [REPEATED, CONFIG], ids=["agent.yaml", "config.yaml"])
def test_settings_that_are_all_commented_out_are_refused(running, project):
    file = project.deciding[0].file
    lines = project.files[file].splitlines(keepends=True)
    settings = ("parallel_test_cases", "repeat", "min_pass", "stop_early")
    kept = [line for line in lines if not line.strip().startswith(settings)]

    ran = running.run(project, Mutant(project.name, file, "", "", "".join(kept).encode()))

    assert ran.code == 2
    assert "execution: has no value; write one, or remove the key" in ran.stderr


@EACH_PROJECT
def test_no_slip_ends_green_without_a_word(running, project):
    verdicts = [running.judge(mutant) for mutant in sample([project], SLIPS_EACH, SEED)]

    assert [one.mutant.name for one in verdicts if one.is_defect] == []


@pytest.mark.parametrize("name", ONCE_GREEN)
def test_a_slip_that_once_was_green_is_red_or_told(running, name):
    verdict = running.judge(ONCE_GREEN[name])

    assert not verdict.is_defect, verdict.mutant.name
    assert verdict.rule is None
