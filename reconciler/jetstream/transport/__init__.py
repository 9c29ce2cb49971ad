"""The connection: settings, login, requests and replies, loss and return."""
