"""Commands on filters in bitstreams."""
