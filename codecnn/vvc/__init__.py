"""The syntax of a VVC bitstream (H.266): headers, CABAC, coding trees. Nothing is reconstructed."""
