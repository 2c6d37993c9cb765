"""Pictures outside a bitstream: files, metrics, motion."""
