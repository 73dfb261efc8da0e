"""Real applications for tests of the browser, from npm and PyPI, served on this machine."""
