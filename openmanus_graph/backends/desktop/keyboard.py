"""Keys by the names that models give them, and texts as keys of a keyboard that lacks letters."""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from openmanus_graph.errors import TrustedToolError

MOST_CHARS = 10_000
"""Of one text: some 15 s of typing."""
_SPARE_KEYCODES = (*range(136, 203), *range(208, 256))
"""Keys of the usual layout that no program of ours uses; those between are modifiers."""
_MODIFIERS = {
    "ctrl": "ctrl", "control": "ctrl", "alt": "alt", "option": "alt", "shift": "shift",
    "super": "super", "win": "super", "windows": "super", "cmd": "super", "command": "super",
    "meta": "super",
}  # fmt: skip
_KEYS = {
    name.lower(): name
    for name in (
        "Return", "Escape", "Tab", "BackSpace", "Delete", "Insert", "Home", "End", "Left", "Right",
        "Up", "Down", "Print", "Pause", "Menu", "Caps_Lock", "Num_Lock", "Scroll_Lock", "space",
        "KP_Enter", *(f"F{number}" for number in range(1, 13)),
    )
} | {
    "enter": "Return", "esc": "Escape", "del": "Delete", "ins": "Insert", "spacebar": "space",
    "pageup": "Prior", "page_up": "Prior", "pgup": "Prior", "prior": "Prior",
    "pagedown": "Next", "page_down": "Next", "pgdn": "Next", "next": "Next",
    "arrowleft": "Left", "arrowright": "Right", "arrowup": "Up", "arrowdown": "Down",
    "capslock": "Caps_Lock", "numlock": "Num_Lock", "printscreen": "Print", "plus": "plus",
}  # fmt: skip


def keys_of(written: str) -> list[str]:
    """Return key presses as xdotool writes them: `Control+A Delete` is two.

    Raises:
        ToolError: A name is not a key's.
    """
    return list(map(_press, written.split())) or (["space"] if written else [])


def _press(word: str) -> str:
    *modifiers, key = re.split(r"(?<=.)\+(?=.)", word)
    names = [_MODIFIERS.get(name.lower()) for name in modifiers]
    if len(key) == 1 and key.isprintable():
        # In `ctrl+A`, as people write it, the key is `a`.
        key = key if "shift" in names or not modifiers else key.lower()
        named = key if key.isascii() and key.isalnum() else f"U{ord(key):04X}"
    else:
        named = _KEYS.get(key.lower()) or _MODIFIERS.get(key.lower())
    if named is None or None in names:
        known = ", ".join(dict.fromkeys(_KEYS.values()))
        raise TrustedToolError(
            f"No key was pressed: {word!r} is not a key. Write one as a character or a name, with "
            f"ctrl+, alt+, shift+ or super+ before it, and several with blanks between. Names: "
            f"{known}, Prior (page up), Next (page down). Use typing for text."
        )
    return "+".join([*filter(None, names), named])


@dataclass(frozen=True)
class TypedPiece:
    """A piece of a text, and the keys that it needs in addition to the usual layout."""

    text: str
    keys: str
    """For xmodmap; empty if it needs none."""


def pieces_of(text: str) -> Iterator[TypedPiece]:
    """Yield a text in pieces that one layout can type each.

    Raises:
        ToolError: It is too long, or has a character that no key types.
    """
    # To xdotool, the end of a line is the key with which a program begins a new line: Return.
    text = text.replace("\r\n", "\n").replace("\n", "\r")
    if len(text) > MOST_CHARS:
        raise TrustedToolError(
            f"Nothing was typed: the text has {len(text):,} characters, and at most {MOST_CHARS:,} "
            "are typed at once. Type it in parts, or write a file and open it in the program."
        )
    wrong = {c for c in text if c not in "\r\t" and unicodedata.category(c) in ("Cc", "Cs")}
    if wrong:
        named = ", ".join(sorted(f"U+{ord(c):04X}" for c in wrong))
        raise TrustedToolError(f"Nothing was typed: no key types {named}. Leave that out.")
    start, letters = 0, dict[str, None]()
    for position, letter in enumerate(text):
        if letter.isascii() or letter in letters:
            continue
        if len(letters) == len(_SPARE_KEYCODES):
            yield _piece(text[start:position], letters)
            start, letters = position, {}
        letters[letter] = None
    yield _piece(text[start:], letters)


def _piece(text: str, letters: dict[str, None]) -> TypedPiece:
    keys = zip(_SPARE_KEYCODES, letters, strict=False)
    return TypedPiece(text, "".join(f"keycode {key} = U{ord(one):04X}\n" for key, one in keys))
