"""Suites of resets: soft ones in any cycle, quiet buses, answers that belong to nothing."""
