"""The options of commands: each described once, and what is made of them."""
