"""Who may write: the lease, the fence before each term, and the connection that a term's changes go over."""
