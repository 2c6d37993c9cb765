"""Training of the network that tells the intra mode of a block."""
