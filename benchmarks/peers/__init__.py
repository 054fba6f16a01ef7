"""The other harnesses, each in an environment of its own, doing the work that holodeck does.

`PEERS[name].prepare(…)` gives a command to measure, `passed(…)` the right verdicts it reached.
"""

from peers.agenticassure import PEER as AGENTICASSURE
from peers.deepeval import PEER as DEEPEVAL
from peers.holodeck_ai import PEER as HOLODECK_AI
from peers.inspect_ai import PEER as INSPECT_AI
from peers.langwatch_scenario import PEER as LANGWATCH_SCENARIO
from peers.peer import Peer, Prepared
from peers.promptfoo import PEER as PROMPTFOO
from peers.pydantic_evals import PEER as PYDANTIC_EVALS

__all__ = ["PEERS", "Peer", "Prepared"]

PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        PYDANTIC_EVALS,
        AGENTICASSURE,
        DEEPEVAL,
        INSPECT_AI,
        LANGWATCH_SCENARIO,
        HOLODECK_AI,
        PROMPTFOO,
    )
}
"""By name, the smallest to install first."""
