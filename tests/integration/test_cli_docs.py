"""What the documentation says and the code decides: generated pages, the changelog, the list of packages, links."""

import importlib.util
import re
from pathlib import Path

import pytest

import rosebed

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]


def generated() -> dict[str, str]:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "tools" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    return reference.pages()


@pytest.mark.parametrize(("name", "text"), generated().items())
def test_generated_pages_are_up_to_date(name: str, text: str) -> None:
    assert (ROOT / "docs" / "reference" / name).read_text() == text, "run `make docs`"


def test_the_changelog_is_of_this_version() -> None:
    versions = re.findall(r"^## \[(\S+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] == rosebed.__version__


def test_the_architecture_page_has_a_line_on_every_package() -> None:
    source = ROOT / "src"
    packages = {".".join(path.parent.relative_to(source).parts) for path in source.rglob("__init__.py")} - {"rosebed"}
    modules = {f"rosebed.{path.stem}" for path in (source / "rosebed").glob("[!_]*.py")}
    page = (ROOT / "docs" / "concepts" / "architecture.md").read_text()
    assert set(re.findall(r"^\| `(rosebed\.[\w.]+)` \|", page, re.MULTILINE)) == packages | modules


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!http)([^)#]*)", page.read_text()):
        assert (page.parent / target).exists(), target
