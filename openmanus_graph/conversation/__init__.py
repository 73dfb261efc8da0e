"""Pure functions that read messages: history, index, stuck detector, outcome, steering messages.

No I/O and no settings; everything from `safety` upwards may import it.
"""
