"""Moshi and KAME on the unchanged `moshi` package: many conversations as rows of one batch."""
