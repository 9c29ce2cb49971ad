"""The partition planner: tables of partitions and workers → a git commit of worker manifests, with no more moves than needed.

Begin with `docs/decisions/0011-partition-planner.md` (the algorithm, exactly) and `run.py` (the order of things).

Invariant: every partition is on exactly one worker, or nothing is written. Importing this loads no numpy, pyarrow or Spark.
"""
