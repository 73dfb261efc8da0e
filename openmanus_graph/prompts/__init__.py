"""The texts that models read: one Markdown file each, rendered by name.

`conversation` and everything above may import it.
"""

from importlib import resources
from string import Template


def render(name: str, /, **variables: str) -> str:
    """Fill in a text's variables.

    Args:
        name: Of its file, without the ending.
        variables: A value for each `$variable` of the text.

    Raises:
        ValueError: There is no such text, or its variables are not those that are given.
    """
    template = _TEMPLATES.get(name)
    if template is None:
        raise ValueError(
            f"There is no prompt {name!r}. Available: {', '.join(sorted(_TEMPLATES))}."
        )
    wanted = set(template.get_identifiers())
    if missing := sorted(wanted - set(variables)):
        raise ValueError(f"The prompt {name} also needs: {', '.join(missing)}.")
    if extra := sorted(set(variables) - wanted):
        raise ValueError(f"The prompt {name} has no variables {', '.join(extra)}.")
    return template.substitute(variables).strip()


def own_texts() -> list[str]:
    """Return all texts as they are written, with their `$variables`."""
    return [template.template for template in _TEMPLATES.values()]


# Read with the module, as code is: a read at first use would block the event loop.
_TEMPLATES = {
    file.name.removesuffix(".md"): Template(file.read_text("utf-8"))
    for file in resources.files("openmanus_graph.prompts").iterdir()
    if file.name.endswith(".md")
}
