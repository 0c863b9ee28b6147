"""The tandem of a speaking model and a back-end: the loop between them, and the log of what was injected."""
