"""What suites share: drivers, patterns, payloads, coverage, naive models, traces."""
