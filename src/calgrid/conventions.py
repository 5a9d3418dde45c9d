"""Constants shared by several parts of the package."""

#: label of out-of-distribution samples
NO_LABEL = -1
#: maximum rows of a row group of a family's logits, unless one setting has more
GROUP_ROWS = 2**16
#: seconds; intermediate results of a job that took longer are stored, so that a killed job
#: continues from them
KEPT_SECONDS = 1.0
#: maximum logits and features that a calibrator processes at once, because it copies them several
#: times
PREDICTED_NUMBERS = 2**21
#: a prepared split with more bytes as an array stays encoded, if that is smaller
ENCODED_ABOVE = 4 * 10**9
#: maximum bytes of images that a training on the CPU holds in memory; larger sets are read batch by
#: batch
HELD_BYTES = 8 * 10**9
#: ``ood/svhn`` is the test split of the data set ``svhn``, used as an out-of-distribution set
OOD_PREFIX = "ood/"
#: a calibrator whose NLL exceeds this multiple of the uncalibrated NLL causes a warning
WORSE = 2.0
#: files of tensors, which need PyTorch
TENSOR_FILES = (".pt", ".pth")
#: index file in the folder of a Hugging Face data set
STORED = "state.json"
#: value of a protocol's ``weights`` if networks are trained
TRAINED = "trained"
#: value of ``fit_on``: calibrators are fitted on a part of each shifted set and scored on the rest
SAME_SHIFT = "same_shift"
SAME_SHIFT_SHARE = 0.2
#: key columns of published numbers beside paper and table, and all required columns of their files
PUBLISHED_PLACE = ("dataset", "backbone", "method", "calibrator", "metric", "shift", "severity")
PUBLISHED_COLUMNS = ("paper", "table", *PUBLISHED_PLACE, "value", "unit", "suspect")
#: unit in these files -> factor to the unit of the metrics
PUBLISHED_UNITS = {"percent": 0.01, "centinats": 0.01, "seconds": 1.0, "rank": 1.0}
