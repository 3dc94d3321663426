"""Benchmarks, each beside its floor or peer in the same run: `make bench`."""
