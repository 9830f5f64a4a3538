"""The demo: a real log of jobs, replayed through the local file store."""
