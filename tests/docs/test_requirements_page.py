"""The page of requirements lists every id of the catalogue, once."""

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CATALOGUE = ROOT / ".." / "shared" / "requirements"
ROW = re.compile(r"^\| ([SCLHXTP]-\d\d|W\d\d) \| (now|later|none) \| \S", re.MULTILINE)


def rows() -> list[tuple[str, str]]:
    """The ids of the page with their marks."""
    return ROW.findall((ROOT / "docs" / "requirements.md").read_text())


def test_each_id_has_one_line() -> None:
    counted = Counter(identifier for identifier, _ in rows())
    assert [identifier for identifier, times in counted.items() if times > 1] == []


@pytest.mark.skipif(not CATALOGUE.is_dir(), reason="the catalogue is not beside this checkout")
def test_the_whole_catalogue_is_there() -> None:
    subscriptions = (CATALOGUE / "subscriptions.md").read_text()
    cases = (CATALOGUE / "wire-cases.md").read_text()
    known = {
        *re.findall(r"\b[SCLHXTP]-\d\d\b", subscriptions),
        *re.findall(r"^## (W\d\d)", cases, re.MULTILINE),
    }
    assert {identifier for identifier, _ in rows()} == known
