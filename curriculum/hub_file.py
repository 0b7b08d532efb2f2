"""A file of a data set on the Hugging Face hub, by the address hf://datasets/OWNER/NAME[@REVISION]/PATH.

The file is fetched once and kept where ``huggingface_hub`` keeps its files; HF_HUB_OFFLINE=1 uses what is
there. Reads no file.
"""

from __future__ import annotations

from pathlib import Path

from configs.task_sets import HUB_FILE_PREFIX, hub_file_parts


def parse_address(address: str) -> tuple[str, str | None, str]:
    """OWNER/NAME, the revision (a branch, tag or commit) and PATH. Raises ValueError for one without them."""
    if (parts := hub_file_parts(address)) is None:
        raise ValueError(f"hub file: value {address!r}: must be {HUB_FILE_PREFIX}OWNER/NAME[@REVISION]/PATH")
    return parts


def fetch_hub_file(address: str) -> Path:
    """The file as a local one. Raises ValueError where it cannot be had."""
    repository, revision, path = parse_address(address)
    # Imported here: only runs on hub data need it.
    from httpx import HTTPError
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HFValidationError

    try:
        return Path(hf_hub_download(repository, path, repo_type="dataset", revision=revision))
    except (HTTPError, HFValidationError, OSError, ValueError) as failure:
        reason = next(iter(str(failure).splitlines()), type(failure).__name__)
        raise ValueError(f"{address}: could not be had from the hub: {reason}") from failure
