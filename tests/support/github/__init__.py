"""What stands in for GitHub: the steps of a workflow run here, and the comments of a pull request."""
