"""Reading the web: which addresses may be reached, plain HTTP, Markdown of pages, robots.txt."""
