"""What the documentation says and the code decides: generated pages, the changelog, the list of packages, links."""

import ast
import builtins
import importlib.util
import re
import tomllib
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_samples_run_as_written(page: Path) -> None:
    """As far as can be told without running them: they compile, and use no name that they do not define."""
    for sample in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        names = [
            node for node in ast.walk(compile(sample, page.name, "exec", ast.PyCF_ONLY_AST)) if type(node) is ast.Name
        ]
        stored = {name.id for name in names if isinstance(name.ctx, ast.Store)} | set(dir(builtins))
        imported = {
            alias.asname or alias.name
            for node in ast.walk(ast.parse(sample))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        functions = {node.name for node in ast.walk(ast.parse(sample)) if isinstance(node, ast.AsyncFunctionDef)}
        assert {name.id for name in names} <= stored | imported | functions
        compile(sample, page.name, "exec")


def test_the_readme_lists_the_extras_there_are() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert re.findall(r"^\| `\.\[(\w+)\]`", (ROOT / "README.md").read_text(), re.MULTILINE) == list(extras)


def test_the_readme_asks_for_no_key_that_its_curl_lacks() -> None:
    commands = re.findall(r"^```sh\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert any("curl" in command for command in commands)
    assert not any("--api-key" in command for command in commands)
