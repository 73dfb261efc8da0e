"""The outside world, one package each: providers of models, sandbox, browser, web, databases.

They know nothing of agents. Everything from `model_calls` upwards may import them. They import
`runtime` and the folders below it.
"""
