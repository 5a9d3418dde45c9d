"""Files with logits as people have them."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def arrays(rows=20, classes=4, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, classes)).astype(np.float32), rng.integers(0, classes, rows)


def npz(path, **content):
    np.savez(path, **content)
    return path


def file_of(path, **content):
    """An .npz or Parquet file of arrays."""
    if path.suffix == ".npz":
        return npz(path, **content)
    columns = {
        name: values if values.ndim == 1 else lists(values) for name, values in content.items()
    }
    pq.write_table(pa.table(columns), path)
    return path


def lists(values):
    return pa.FixedSizeListArray.from_arrays(values.ravel(), values.shape[1])
