"""Runs mutants through `holodeck test`, in forks of a process that has imported it."""

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mutants.legitimate import why_legitimate
from mutants.mutant import Mutant
from mutants.project import Project
from mutants.projects import BY_NAME
from mutants.projects_turns import server
from support.cli import clean_environment
from support.nursery import NURSERY

LONGEST_S = 60
RED, REFUSED, UNDECIDED = "red", "refused", "error or undecided"
WARNED, LEGITIMATE, SILENT = (
    "green with a warning",
    "green, asks for something else",
    "SILENT GREEN",
)
BROKEN = "CRASH OR HANG"
CLASSES = (RED, REFUSED, UNDECIDED, WARNED, LEGITIMATE, SILENT, BROKEN)
_BY_CODE = {1: RED, 2: REFUSED, 3: UNDECIDED, 4: UNDECIDED, 5: UNDECIDED, 6: UNDECIDED}
_OF_EVERY_RUN = ("Running ",)
"""How lines of stderr begin that are no warning."""


@dataclass(frozen=True)
class Ran:
    """How `holodeck test` ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def words(self) -> list[str]:
        """What was said besides the results."""
        lines = filter(str.strip, self.stderr.splitlines())
        return [line for line in lines if not line.startswith(_OF_EVERY_RUN)]


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant, and by which rule it may be green."""

    mutant: Mutant
    kind: str
    ran: Ran
    rule: str | None = None

    @property
    def is_defect(self) -> bool:
        """Whether it ended green without a word, or did not end as a run does."""
        return self.kind in {SILENT, BROKEN}


class Study:
    """The servers and the folder; leaving `study()` ends and removes them."""

    def __init__(self, folder: Path, url: str) -> None:
        home = folder / "home"
        home.mkdir()
        self._folder = folder
        self._environment = clean_environment(home, {"SERVER": url})

    def run(self, project: Project, mutant: Mutant | None = None) -> Ran:
        """`holodeck test` of the project, with the mutant in place of its file."""
        with tempfile.TemporaryDirectory(dir=self._folder) as name:
            folder = Path(name, "project")
            project.write(folder)
            if mutant is not None:
                path = folder / mutant.file
                path.unlink()
                path = folder / (mutant.new_name or mutant.file)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(mutant.content)
            code, out, err = NURSERY.run(
                ("test", *project.args, "--no-record"),
                cwd=folder,
                env=self._environment,
                stdin=None,
                timeout=LONGEST_S,
            )
        return Ran(code, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))

    def judge(self, mutant: Mutant) -> Verdict:
        """Run the mutant and say what became of it."""
        project = BY_NAME[mutant.project]
        ran = self.run(project, mutant)
        if ran.code:
            kind = _BY_CODE.get(ran.code, BROKEN)
            crashed = "Internal Error" in ran.stderr or "Traceback" in ran.stderr
            return Verdict(mutant, BROKEN if crashed else kind, ran)
        if ran.words:
            return Verdict(mutant, WARNED, ran)
        rule = why_legitimate(project, mutant)
        return Verdict(mutant, SILENT if rule is None else LEGITIMATE, ran, rule)


@contextmanager
def study() -> Iterator[Study]:
    """A study whose servers run and whose folder is new."""
    with tempfile.TemporaryDirectory() as name, server() as serving:
        yield Study(Path(name), serving.root)


def table(verdicts: Sequence[Verdict]) -> str:
    """How many mutants ended how, and the rules that were used."""
    kinds = Counter(one.kind for one in verdicts)
    rules = Counter(one.rule for one in verdicts if one.rule is not None)
    lines = [f"{kinds[kind]:6}  {kind}" for kind in CLASSES]
    lines.append(
        f"{len(verdicts):6}  mutants of {len({one.mutant.project for one in verdicts})} projects"
    )
    lines += ["", "Green because the file asks for something else:"]
    lines += [f"{count:6}  {rule}" for rule, count in rules.most_common()]
    return "\n".join(lines)
