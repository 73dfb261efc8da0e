"""Chromium, driven through Playwright: sessions, tabs, what a page shows, guarded traffic.

The tool `browser_use` stands before it; nothing else operates pages.
"""
