"""People's own logits and arrays: reading, calibrating, ranking, comparing."""

#: files of tensors, which need PyTorch
TENSOR_FILES = (".pt", ".pth")
#: index file in the folder of a Hugging Face data set
STORED = "state.json"
