"""Runs that begin without a person: what starts them, once each, and where their answers go."""
