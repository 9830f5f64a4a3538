"""Queue and AsyncQueue: each public method is one flow, run blocking or awaited."""
