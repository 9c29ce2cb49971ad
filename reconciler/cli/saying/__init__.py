"""What people and workflows are told: output, progress, failures, exit codes, questions."""
