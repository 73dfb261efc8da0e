"""Print how the app looks."""

import configparser

settings = configparser.ConfigParser()
settings.read("app.ini")
colour_mode = settings["app"]["colour_mode"]
print(f"theme: {colour_mode}")
