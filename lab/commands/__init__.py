"""The laboratory's commands, which :mod:`cassandra_spec.commands.checkout` adds to ``casspec``."""

from cassandra_spec.lab.commands import compare, methods, study, system, train_exits

COMMANDS = (compare.register, train_exits.register, system.register)
"""Functions that add commands of ``casspec``."""
BENCHMARKS = (
    *(study.add_acceptance, study.add_small_model),
    *(methods.add_exits, methods.add_projection, methods.add_tables),
)
"""Functions that add benchmarks of ``casspec bench``."""
