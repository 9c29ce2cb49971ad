"""The partition planner: how good its plans are, how long they take, and what others do with the same partitions."""
