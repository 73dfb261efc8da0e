"""Chromium, driven through Playwright: sessions, tabs, what a page shows, guarded traffic.

Only the tool `browser_use` operates pages.
"""
