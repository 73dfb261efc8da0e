"""`python -m openmanus_graph.interfaces.cli` is the command `openmanus`."""

from openmanus_graph.interfaces.cli.main import main

main()
