"""The networks, a family a file."""
