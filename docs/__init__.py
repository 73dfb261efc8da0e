"""Documents, and what makes those that the code knows best."""
