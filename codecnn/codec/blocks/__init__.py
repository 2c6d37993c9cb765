"""Block statistics: `table` of CUs, the `files` it is read from and written to, and `planes` drawn from it."""
