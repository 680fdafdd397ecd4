"""Which route a request's target leads to."""

import pytest

from rosebed.ivy.http.router import Router, path_of

ROUTER = Router(
    [("/", "root"), ("/models", "models"), ("/models/{id:path}", "model"), ("/a/{b}/c", "between"), ("/x.y", "dot")],
    "nothing",
)


@pytest.mark.parametrize(
    ("target", "found", "parameters"),
    [
        (b"/", "root", None),
        (b"/?a=b", "root", None),
        (b"/models", "models", None),
        (b"/mod%65ls?x", "models", None),
        (b"http://host:1/models?x", "models", None),
        (b"http://host", "root", None),
        (b"/models/org/name", "model", {"id": "org/name"}),
        (b"/models/org%2Fname?x=/y", "model", {"id": "org/name"}),
        (b"/models/%E5%AD%97", "model", {"id": "字"}),
        (b"/models/", "model", {"id": ""}),
        (b"/a/b/c", "between", {"b": "b"}),
        (b"/a/b/b/c", "nothing", None),
        (b"/a//c", "nothing", None),
        (b"/xzy", "nothing", None),
        (b"/Models", "nothing", None),
        (b"/models?%2Fx", "models", None),
        (b"//models", "nothing", None),
        (b"*", "nothing", None),
        (b"host:1", "nothing", None),
        (b"http://[", "nothing", None),
    ],
)
def test_routes(target: bytes, found: str, parameters: dict[str, str] | None) -> None:
    assert ROUTER.find(target) == (found, parameters)


def test_a_proxy_s_path_may_be_there_or_not() -> None:
    router = Router([("/", "root"), ("/models", "models")], "nothing", root_path="/api")
    assert [router.find(target)[0] for target in (b"/models", b"/api/models", b"/api/models?x")] == ["models"] * 3
    assert router.find(b"/api/")[0] == "root"
    assert [router.find(target)[0] for target in (b"/api", b"/apimodels", b"/api/api/models")] == ["nothing"] * 3


def test_path_of() -> None:
    assert path_of(b"/a%20b?c#d") == "/a b"
