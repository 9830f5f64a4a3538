"""Benchmarks: each prints its figure beside its goal, and beside the peer's figure from the same run."""
