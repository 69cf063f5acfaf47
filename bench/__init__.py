"""Everything that measures: each module is a benchmark that anyone can run."""
