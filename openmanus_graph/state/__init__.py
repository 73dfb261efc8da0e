"""What checkpoints hold, what a run is given, and the plain records that all folders share.

Typed states and reducers, `Context` and `Settings`, traits and observations; every folder may
import it, it imports `errors` only.
"""
