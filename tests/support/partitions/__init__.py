"""Plans of partitions: the files that a data engineer writes, random pools, and a rollout to a daemon."""
