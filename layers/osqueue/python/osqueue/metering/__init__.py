"""What the commits of an invocation did, counted while it runs and printed for CloudWatch when it ends."""
