"""The engine: reads tokens into a pot, distils it, generates from it, saves and loads it.

It prints nothing and knows no terminal. Modules that need torch are imported by name
(``from engine.reader import Reader``), so importing this package costs nothing.
"""
