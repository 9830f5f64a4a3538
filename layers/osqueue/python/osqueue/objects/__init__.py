"""What lies in the store beside the head: layout, ids, segments, finished tables, the archive, backups."""
