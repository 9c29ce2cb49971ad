"""What the tests stand on: real servers of any version, and a second client that speaks raw JetStream."""
