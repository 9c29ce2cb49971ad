"""The process over HTTP."""
