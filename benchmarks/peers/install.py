"""Installs the peers, each in an environment of its own; what is there already is left alone.

    python benchmarks/peers/install.py [--home FOLDER] [NAME …]

Exits with 1 and says why when one could not be installed; the others are installed all the same.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from peers import PEERS, Peer
from peers.homes import default_home
from peers.installer import NotInstalled, install


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Install the peers of the benchmark.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of: {', '.join(PEERS)}")
    parser.add_argument("--home", type=Path, default=default_home())
    given = parser.parse_args()
    if unknown := sorted(set(given.names) - PEERS.keys()):
        parser.error(f"{', '.join(unknown)}: no such peer; there are {', '.join(PEERS)}")
    return given


def install_all(peers: Sequence[Peer], home: Path) -> int:
    """How many could not be installed."""
    failed = 0
    for peer in peers:
        try:
            install(peer, home)
        except NotInstalled as error:
            failed += 1
            print(f"{peer.name} {peer.version}: NOT installed: {error}", file=sys.stderr)
        else:
            print(f"{peer.name} {peer.version}: installed", flush=True)
    return failed


def main() -> int:
    given = options()
    peers = [peer for peer in PEERS.values() if peer.name in given.names or not given.names]
    return 1 if install_all(peers, given.home.expanduser().absolute()) else 0


if __name__ == "__main__":
    sys.exit(main())
