"""What keeps a queue healthy: the reaper, the doctor, compaction, collection of garbage, and restores."""
