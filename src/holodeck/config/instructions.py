"""What the agent is told, without the file's front matter."""

import re

from holodeck.config.files import text_of
from holodeck.config.source import Source
from holodeck.errors import ConfigError
from holodeck.models.agent import Agent

_FRONT_MATTER = re.compile(r"---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)


def instructions_text(agent: Agent) -> str:
    """The text for the model, word for word; "" for an agent without instructions.

    Raises FileNotFoundError if the file is not there, ConfigError if it is outside of the agent's
    folder, unreadable or says nothing.
    """
    if agent.instructions is None:
        return ""
    if agent.instructions.inline is not None:
        return agent.instructions.inline
    name = agent.instructions.file or ""
    where = f"{agent.place('instructions', 'file')}: instructions.file"
    text = without_front_matter(text_of(name, agent.base_dir, where), name)
    if not text.strip():
        raise ConfigError(where, f"{name!r} says nothing; write what the agent is to do")
    return text


def without_front_matter(text: str, name: str) -> str:
    """`text` without a mapping between two lines `---` at its very beginning.

    Raises ConfigError where that block looks like one and cannot be read.
    """
    match = _FRONT_MATTER.match(text)
    if match is None or not match[1].strip():
        return text if match is None else text[match.end() :]
    if not re.search(r"^\S+:(\s|$)", match[1], re.MULTILINE):
        return text
    try:
        Source.of(match[1], name)
    except ConfigError as error:
        raise ConfigError(
            name,
            f"the front matter cannot be read: {error.message}; if it is meant as text, begin the"
            " file with an empty line",
        ) from error
    return text[match.end() :].lstrip("\r\n")
