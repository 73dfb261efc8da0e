"""Pure functions that read messages: history, index, stuck detector, outcome, interjections.

No I/O and no settings; everything from `safety` upwards may import it.
"""
