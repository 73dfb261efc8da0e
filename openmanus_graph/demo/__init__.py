"""The data and recordings of `openmanus demo`.

`penguins-raw.csv` holds size measurements of penguins of the Palmer Archipelago, collected by
Kristen Gorman and the Palmer Station LTER, published under CC0. `penguins.json` holds a model's
replies for the task, recorded for the demo; `penguins-plan.json` holds those for the task done by
a plan, one conversation for each step.
"""
