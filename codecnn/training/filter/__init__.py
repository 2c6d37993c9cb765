"""Training of filter networks."""
