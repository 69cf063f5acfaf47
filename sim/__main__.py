"""``python -m cassandra_spec.sim``: what ``make sim`` runs."""

import sys

from cassandra_spec.sim.weights import main

if __name__ == "__main__":
    sys.exit(main())
