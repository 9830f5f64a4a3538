"""How a remote queue's calls reach its functions: over HTTP, or by invoking them.

A transport performs ``Call`` effects as a store performs its requests, so the drivers that run flows over a store run
them over an API as well.
"""
