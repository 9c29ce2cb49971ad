"""What the server would refuse, or silently rewrite, about one resource: known without asking it.

Invariant: a configuration that every supported server keeps as it is breaks no rule; each rule was seen on real servers.
"""
