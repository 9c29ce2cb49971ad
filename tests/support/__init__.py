"""What tests stand on, a folder a word: server, account, cluster, daemon, sources, world, clock, values. See tests/README.md."""
