"""Words and numbers of the file contract on which several parts of the package must agree."""

#: label of a row that has none (out-of-distribution sets)
NO_LABEL = -1
#: most rows of a family's logits that are written and read together, but for a setting of more
GROUP_ROWS = 2**16
#: most numbers of a row's logits and features that a calibrator predicts from at once, for it copies them several times
PREDICTED_NUMBERS = 2**21
#: images of a prepared split that take more bytes as an array stay encoded, unless that takes more still
ENCODED_ABOVE = 4 * 10**9
#: most bytes of images that a training holds in the memory of a processor; more are read batch by batch
HELD_BYTES = 8 * 10**9
#: ``ood/svhn`` is the test split of the data set ``svhn``, used as an out-of-distribution set
OOD_PREFIX = "ood/"
#: a calibrator with more than this many times the NLL of the uncalibrated logits is warned of, wherever it is scored
WORSE = 2.0
#: files of tensors that people bring, which only PyTorch reads
TENSOR_FILES = (".pt", ".pth")
#: file of a folder in which a Hugging Face data set is stored; it lists the others
STORED = "state.json"
#: value of a protocol's ``weights`` where networks are trained here
TRAINED = "trained"
#: value of ``fit_on``: a part of each shifted set fits the calibrators that are scored on the rest of it
SAME_SHIFT = "same_shift"
SAME_SHIFT_SHARE = 0.2
#: what a published number is about, beside its paper and table, and all columns that files of them must have
PUBLISHED_PLACE = ("dataset", "backbone", "method", "calibrator", "metric", "shift", "severity")
PUBLISHED_COLUMNS = ("paper", "table", *PUBLISHED_PLACE, "value", "unit", "suspect")
#: unit in these files -> what one printed unit is worth in the unit of the metrics
PUBLISHED_UNITS = {"percent": 0.01, "centinats": 0.01, "seconds": 1.0, "rank": 1.0}
