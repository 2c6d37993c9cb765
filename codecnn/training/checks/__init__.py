"""Checks of a training set-up before the hours are spent."""
