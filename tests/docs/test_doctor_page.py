"""docs/doctor.md against the registry of checks: codes, reasons, remedies, and the test that provokes each."""

from __future__ import annotations

from streamapp.operations.doctor.checks import ALL
from tests.doctor.page import PAGE, ROOT, provoked, rendered


def test_the_page_is_the_registrys() -> None:
    assert PAGE.read_text() == rendered(), "write it anew: python -m tests.doctor.page"


def test_each_code_is_provoked_by_a_test() -> None:
    assert {check.code for check in ALL} == provoked().keys()


def test_each_page_exists() -> None:
    for check in ALL:
        if "://" not in check.page:
            path, _, anchor = check.page.partition("#")
            text = (ROOT / "docs" / path).read_text().lower()
            titles = {
                line.lstrip("# ").replace(" ", "-").replace(",", "")
                for line in text.splitlines()
                if line.startswith("#")
            }
            assert not anchor or anchor in titles, check.page
