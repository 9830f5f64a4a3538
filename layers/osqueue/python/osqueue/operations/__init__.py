"""Everything a Queue does, as flows over the commit layer: the embedded mode. ``flows`` puts them together.

A flow validates, asks for commits (``Submit``) and reads (store requests), and turns outcomes into what callers
see. It does no I/O itself, so the blocking and the async Queue run the same flows.
"""
