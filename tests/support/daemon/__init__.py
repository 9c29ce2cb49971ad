"""The `reconciler` command and its daemon, run as users run them."""
