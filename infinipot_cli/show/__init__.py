"""Showing a pot: the text that was read, with what is still held of it, shaded.

``originals`` finds the files that a pot was read from, ``pieces`` puts text and census together, and ``shades``,
``plain``, ``page`` and ``lines`` write it for a terminal or a pipe, as HTML, and as JSON.
"""
