"""The outer world, one package each: providers of models, sandbox, browser, web, databases.

They know how to reach a thing, and nothing of agents. Everything from `model_calls` upwards may
import them; they import `runtime` and what lies below it.
"""
