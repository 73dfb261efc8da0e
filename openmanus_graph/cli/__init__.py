"""The command `openmanus`."""
