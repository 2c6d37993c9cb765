"""Filters in bitstreams: post-filter messages (H.274), updates of weights."""
