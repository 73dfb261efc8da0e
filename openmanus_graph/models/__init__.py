"""Reaching models: what they are, how they are asked, what a reply is worth and costs."""
