"""Reads the results files of magister (HDF5: teacher logits, texts, verdicts) for numpy, PyTorch and Hugging Face datasets.

    with magister_reader.open("runs/quickstart/teacher.h5") as results:
        print(results[0].key, results[0].top_logprob)

numpy and h5py are all this needs; `magister_reader.torch` needs torch, `magister_reader.record_batches` pyarrow.
"""
from .error import Error
from .file import Column
from .results import Results, Sample
from .results import open_results as open
from .sampler import ResumableSampler
from .tables import record_batches, rows

__all__ = ["Column", "Error", "Results", "ResumableSampler", "Sample", "open", "record_batches", "rows"]
