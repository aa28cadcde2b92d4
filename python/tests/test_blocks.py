"""Generated parts of pages."""

import pytest

from blocks import replaced


def test_only_what_stands_between_the_comments_is_replaced() -> None:
    text = replaced("above <b> old <e> below <e>", "<b>", "<e>", "new", "page.md")
    assert text == "above <b>\n\nnew\n\n<e> below <e>"
    assert replaced(text, "<b>", "<e>", "new", "page.md") == text


@pytest.mark.parametrize("text", ["", "<e>", "<b>", "<e> <b>", "<b> <b> <e>", "<b> <e> <b> <e>"])
def test_a_page_without_the_block_or_with_several_is_refused(text: str) -> None:
    with pytest.raises(SystemExit, match=r"^page\.md: found no block or several from <b> to <e>"):
        replaced(text, "<b>", "<e>", "new", "page.md")
