"""Define the benchmarks of the product."""
