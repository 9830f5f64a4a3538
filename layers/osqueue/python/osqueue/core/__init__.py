"""The pure core: what a queue is, what can happen to it, and what that changes. No I/O, no clock, no chance."""
