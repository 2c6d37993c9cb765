"""Block statistics: the table of CUs, the files it is read from and written to, and planes of it."""
