"""Files of the workspace: opening, reading, changing them. Light: child processes import it."""
