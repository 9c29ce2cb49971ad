"""The chart as helm renders it, and its pods as a node would run them."""
