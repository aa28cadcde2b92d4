"""Generated parts of pages, each between two comments."""

__all__ = ["replaced"]


def replaced(text: str, begin: str, end: str, content: str, page: str) -> str:
    """Return the text of a page with `content` between the comments `begin` and `end`.

    Exits unless `text` has `begin` once, and `end` behind it. `page` is the page's name in the message.
    """
    before, _, rest = text.partition(begin)
    _, found, after = rest.partition(end)
    if not found or begin in rest:
        raise SystemExit(f"{page}: found no block or several from {begin} to {end}; allowed: one")
    return f"{before}{begin}\n\n{content}\n\n{end}{after}"
