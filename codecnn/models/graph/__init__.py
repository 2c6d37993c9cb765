"""Networks as graphs of plain operations, for other programs."""
