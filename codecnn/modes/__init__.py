"""The best intra mode of every block: labels, and networks that predict it."""
