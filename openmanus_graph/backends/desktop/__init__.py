"""The desktop of a thread, seen as pictures and used by mouse and keyboard.

Tools and the server import it; the programs on it run in the thread's sandbox.
"""
