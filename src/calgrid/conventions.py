"""Words of the file contract that several parts of the package must spell alike."""

#: label of a row that has none (out-of-distribution sets)
NO_LABEL = -1
#: ``ood/svhn`` is the test split of the data set ``svhn``, used as an out-of-distribution set
OOD_PREFIX = "ood/"
