"""What others see of a running process: metrics, logs, events, status, HTTP."""
