"""H.266: syntax, decoder, intra prediction and transforms."""
