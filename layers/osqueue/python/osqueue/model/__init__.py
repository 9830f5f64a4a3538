"""What callers see: jobs and their keys, dead letters, stories, and how what callers pass in is checked. No I/O."""
