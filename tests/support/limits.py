"""How long tests wait at the most for what must come.

These limits are for what never comes, not for what comes late: a machine with much else to do
must not fail a test. What a test expects, it waits for as an event.
"""

BACKSTOP_S = 300.0
"""For one event: a process that ends, a page that is loaded, a line that is written."""
POLL_S = 0.02
"""Between two looks at what nobody announces."""
