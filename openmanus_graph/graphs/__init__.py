"""One agent per file, the loop that they share, the plan graph, and the catalogue.

Interfaces and apps import them.
"""
