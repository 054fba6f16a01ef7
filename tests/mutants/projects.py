"""All projects of the study."""

from mutants.projects_checks import TEXT_CHECKS
from mutants.projects_suites import SUITES
from mutants.projects_tools import TOOL_CALLS
from mutants.projects_traces import TRACES
from mutants.projects_trajectory import TRAJECTORIES
from mutants.projects_turns import CONVERSATIONS

PROJECTS = [*TEXT_CHECKS, *TOOL_CALLS, *TRAJECTORIES, *TRACES, *SUITES, *CONVERSATIONS]
BY_NAME = {project.name: project for project in PROJECTS}
