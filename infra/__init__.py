"""The deployment: a CDK app with one stack a duty, and the build of its Lambda layer."""
