"""Instructions of the kernels for each weight, counted without a clock."""
