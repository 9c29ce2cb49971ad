"""The same plan, made by Spark: DataFrames in, DataFrames out, and nothing on the driver but sums per worker.

Invariant: JVM expressions only; the same tables give the same plan as `planning`, whatever the order and number of partitions.
"""
