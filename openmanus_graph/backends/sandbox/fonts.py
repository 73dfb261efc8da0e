"""A font for Chinese, Japanese and Korean in charts, without the system's package manager."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

_PACKAGE = "notojp_matplotlib"
"""Of the `data` extra: Noto Sans CJK (OFL), with the glyphs of all these languages."""
_PACKAGED = "Noto Sans CJK JP"
_MAC = "PingFang SC, Hiragino Sans GB, Arial Unicode MS"
_KNOWN = (
    "Noto Sans CJK SC",
    "Noto Sans SC",
    "Source Han Sans SC",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "Microsoft YaHei",
    "SimHei",
    "Droid Sans Fallback",
)


def chinese_font() -> str:
    """Name the font charts will fall back to, or nothing. Blocks."""
    if _packaged():
        return _PACKAGED
    if sys.platform == "darwin":
        return _MAC
    program = shutil.which("fc-list")
    if program is None:
        return ""
    try:
        done = subprocess.run(
            [program, ":lang=zh", "family"], capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return next((name for name in _KNOWN if name in done.stdout), "")


def make_chart_settings(home: Path) -> None:
    """Write matplotlib's settings into a home, and link the packaged font there."""
    mac = sys.platform == "darwin"
    fonts = home / "Library" / "Fonts" if mac else home / ".local" / "share" / "fonts"
    fonts.mkdir(parents=True, exist_ok=True)
    for font in _packaged():
        (fonts / font.name).symlink_to(font)
    family = chinese_font()
    # As a further family, not inside font.sans-serif: code that sets that list keeps the fallback.
    families = f"sans-serif, {family}" if family else "sans-serif"
    configuration = home / ".config" / "matplotlib"
    configuration.mkdir(parents=True, exist_ok=True)
    (configuration / "matplotlibrc").write_text(f"font.family: {families}\n")


def _packaged() -> list[Path]:
    """Find the files of the font of the `data` extra."""
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        return []
    return list((Path(spec.origin).parent / "fonts").glob("*.otf"))
