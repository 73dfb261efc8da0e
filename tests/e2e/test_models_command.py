"""What one process has learnt about a server, the next one knows, and the person can forget."""
