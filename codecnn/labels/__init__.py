"""Labels: the best intra mode of every block of a picture."""
