"""Resources and services of a run: session, workspace, artifacts, events, limits.

Live handles belong here and never into the state. Backends and everything above may import it.
"""
