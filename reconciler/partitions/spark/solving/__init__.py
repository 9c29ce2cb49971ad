"""The planner on DataFrames: who gets what, and why."""
