"""Formats of people's logits, and how files of other formats are converted."""

from pathlib import Path

from calgrid.errors import DataError, refuse

TENSOR_FORMATS = (".pt", ".pth")
FORMATS = (".npz", ".npy", *TENSOR_FORMATS, ".parquet", ".csv")
#: the last layer may also be a file that calgrid wrote
HEAD_FORMATS = (".npz", *TENSOR_FORMATS, ".safetensors")

SAVE_ARRAYS = "numpy.savez('logits.npz', logits=logits, label=label)"
CONVERSIONS = {
    ".safetensors": "convert it with "
    "numpy.savez('logits.npz', **safetensors.numpy.load_file('logits.safetensors'))",
    ".arrow": "convert it with "
    "datasets.Dataset.from_file('logits.arrow').to_parquet('logits.parquet')",
    ".feather": "convert it with "
    "pandas.read_feather('logits.feather').to_parquet('logits.parquet')",
    ".tsv": "convert it with "
    "pandas.read_csv('logits.tsv', sep='\\t').to_csv('logits.csv', index=False)",
    ".xlsx": "convert it with pandas.read_excel('logits.xlsx').to_csv('logits.csv', index=False)",
    ".gz": "unpack it",
    ".zip": "unpack it",
}
PICKLES = (".p", ".pkl", ".pickle", ".joblib")


def check_format(path: Path, formats: tuple[str, ...] = FORMATS) -> None:
    """Raise DataError unless the name of a file ends like one of ``formats``; it need not exist."""
    suffix = path.suffix.lower()
    if suffix in formats:
        return
    remedy = CONVERSIONS.get(suffix, f"save the arrays with {SAVE_ARRAYS}")
    *most, last = [one for one in formats if one != ".pth"]
    refuse(
        (
            path.is_dir(),
            f"{path} is a folder; give one file, for a data set of Hugging Face that of "
            f"datasets.load_from_disk('{path}').to_parquet('logits.parquet').",
        ),
        (
            suffix in PICKLES,
            f"{path}: pickles are not read, because they can execute code; if you trust the file, "
            f"load it and save the arrays with {SAVE_ARRAYS}.",
        ),
        error=DataError,
    )
    raise DataError(f"{path} must be {', '.join(most)} or {last}; {remedy}.")
