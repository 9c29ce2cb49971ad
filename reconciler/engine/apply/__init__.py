"""Carries a plan out: in which order, one change or a procedure at a time, and what became of each."""
