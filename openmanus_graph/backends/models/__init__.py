"""Providers of models: clients, requests, replies, failures and prices."""
