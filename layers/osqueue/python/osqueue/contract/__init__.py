"""What travels between callers and the functions: operations, schemas, error codes. The one table of each."""
