"""What an encoder would decide of the filter: off, on, by CTU, scale and QP offset, by rate and distortion."""
