"""The lowest layer: errors, files, runtime, planes, distribution of work, compiled code."""
