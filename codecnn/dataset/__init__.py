"""The training set: recipe, CTU grid and halo, build, store, loader."""
