"""`python -m openmanus_graph.cli` is the command `openmanus`."""

from openmanus_graph.cli.main import main

main()
