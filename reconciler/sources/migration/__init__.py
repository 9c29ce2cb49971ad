"""migrate-source: from one way of reading to another while messages flow."""
