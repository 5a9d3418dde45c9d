"""Tables, figures and the HTML report of a study, made from its Parquet files; nothing here imports
torch.
"""
