"""Enqueueing from many processes at once, visible in one commit of each shard or not at all."""
