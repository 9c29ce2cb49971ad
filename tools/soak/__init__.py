"""Two daemons, thousands of resources, and somebody who meddles with all of them: what is lost, what stays broken, what grows."""
