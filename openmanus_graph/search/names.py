"""The names of the engines, the variables that set them up, and how much may be asked for."""

MAX_RESULTS = 50

KEY_VARIABLES = {
    "tavily": ("TAVILY_API_KEY",),
    "brave": ("BRAVE_API_KEY", "BRAVE_SEARCH_API_KEY"),
    "google": ("GOOGLE_API_KEY",),
    "bing": ("BING_API_KEY", "BING_SUBSCRIPTION_KEY", "BING_SEARCH_V7_SUBSCRIPTION_KEY"),
    "baidu": ("BAIDU_API_KEY", "QIANFAN_API_KEY"),
}
"""Engines that want a key: the first variable is the one to name."""
GOOGLE_ID_VARIABLE = "GOOGLE_CSE_ID"
SEARXNG_VARIABLE = "SEARXNG_URL"

BACKENDS = ("duckduckgo", "brave", "mojeek", "startpage", "yahoo", "wikipedia")
"""What ddgs asks, in this order; Grokipedia is left out, because machines write it."""

ENGINES = ("ddgs", "searxng", *KEY_VARIABLES, *(name for name in BACKENDS if name != "brave"))
"""What may stand as `engine` and in `fallback_engines`; case does not matter."""
