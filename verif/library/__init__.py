"""Shared parts of suites: drivers, patterns, payloads, coverage, naive models, traces."""
