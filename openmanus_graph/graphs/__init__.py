"""One graph per file, wiring only; the loop and the middleware they share, and the catalogue.

Interfaces and apps import them.
"""
