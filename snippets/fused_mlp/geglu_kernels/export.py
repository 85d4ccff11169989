"""Write the package into a folder of its own: `python export.py FOLDER`.

The folder is a project that `kernel-builder` takes, with files where this one has links. Its `build` is what
`kernel-builder` makes of it: an identifier from the content, the SHA-256 of each file, and the folder that versions of
`kernels` before 0.11 load.
"""

import base64
import hashlib
import json
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).absolute().parent
"""Not resolved: another package has this file as a link."""
VARIANT = Path("build/torch-cuda")
OLD_PACKAGE = '''\
"""The symbols of the folder above, for versions of `kernels` that load this one."""

import importlib.util
import sys
from pathlib import Path

spec = importlib.util.spec_from_file_location("{id}", Path(__file__).parents[1] / "__init__.py")
module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
__all__ = module.__all__
globals().update({{name: getattr(module, name) for name in __all__}})
'''


def export(folder: Path) -> None:
    """Write the package to `folder`, which must not exist."""
    metadata = json.loads(
        (HERE / VARIANT / "metadata.json").read_text(encoding="utf-8")
    )
    shutil.copytree(
        HERE,
        folder,
        ignore=shutil.ignore_patterns(
            "build", "export.py", "metadata.json", "__pycache__"
        ),
    )
    variant, name = folder / VARIANT, metadata["name"].replace("-", "_")
    shutil.copytree(folder / "torch-ext" / name, variant)
    shutil.copy(HERE / "CARD.md", folder / "build")  # uploaded as README.md
    metadata["id"] = (
        f"_{name}_cuda_{hashlib.sha256(repr(file_digests(variant)).encode()).hexdigest()[:7]}"
    )
    (variant / name).mkdir()
    (variant / name / "__init__.py").write_text(
        OLD_PACKAGE.format(id=metadata["id"]), encoding="utf-8"
    )
    metadata["digest"] = {"algorithm": "sha256", "files": file_digests(variant)}
    (variant / "metadata.json").write_text(
        json.dumps(metadata, indent=2) + "\n", encoding="utf-8"
    )


def file_digests(folder: Path) -> dict[str, str]:
    """Path in `folder` -> base64 of the SHA-256 of the file."""
    return {
        path.relative_to(folder).as_posix(): base64.b64encode(
            hashlib.sha256(path.read_bytes()).digest()
        ).decode()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        export(Path(sys.argv[1]))
    except FileExistsError:
        sys.exit(f"{sys.argv[1]} exists: name a new folder, or delete it first")
