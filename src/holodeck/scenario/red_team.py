"""Strategies, techniques and encodings of simulated users that attack."""

from holodeck.lib.conversation.red_team.encodings import (
    DEFAULT_TECHNIQUES,
    AttackTechnique,
    Base64Technique,
    CharSplitTechnique,
    CodeBlockTechnique,
    LeetspeakTechnique,
    ROT13Technique,
)
from holodeck.lib.conversation.red_team.goat import (
    DEFAULT_GOAT_TECHNIQUES,
    GoatStrategy,
    Technique,
)
from holodeck.lib.conversation.red_team.strategies import (
    AttackerOutput,
    CrescendoStrategy,
    RedTeamStrategy,
)

__all__ = [
    "DEFAULT_GOAT_TECHNIQUES",
    "DEFAULT_TECHNIQUES",
    "AttackTechnique",
    "AttackerOutput",
    "Base64Technique",
    "CharSplitTechnique",
    "CodeBlockTechnique",
    "CrescendoStrategy",
    "GoatStrategy",
    "LeetspeakTechnique",
    "ROT13Technique",
    "RedTeamStrategy",
    "Technique",
]
