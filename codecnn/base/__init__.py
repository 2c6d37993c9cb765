"""What every other package builds on: errors, files, runtime, planes, distribution of work, compiled code."""
