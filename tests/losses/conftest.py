"""One thread, as the batches of these tests are small."""

import torch

torch.set_num_threads(1)
