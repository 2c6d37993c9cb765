"""The encoders: argv as pure functions, the process, its log."""
