"""JetStream in memory, for procedures: everything they may meet, at every step, in milliseconds."""
