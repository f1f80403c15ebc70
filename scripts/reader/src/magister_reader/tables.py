"""Samples as rows of a table, for Hugging Face datasets and for pyarrow (which is imported only when it is asked for)."""
import numpy

from .results import open_results


def rows(path, partial=False, columns=None):
    """Yields a dict per sample: key, source_index, ids and all other columns, or those that `columns` names.
    datasets.Dataset.from_generator(magister_reader.rows, gen_kwargs={"path": "teacher.h5"}) makes a data set of it.
    """
    with open_results(path, partial) as results:
        names = list(results.columns if columns is None else columns)
        for sample in results:
            yield {name: _plain(sample[name]) for name in names}


def _plain(value):
    return value.item() if isinstance(value, numpy.generic) else value


def record_batches(path, partial=False, columns=None):
    """Yields pyarrow RecordBatches, a row per sample: pyarrow.Table.from_batches(record_batches("teacher.h5")). Numbers are not copied value by
    value: a column with an entry per token becomes a list column of the file's own type, [L, k] a list of lists of length k.
    """
    import pyarrow

    def as_array(block, column):
        values = block.column(block.file.columns[column.path])
        if column.is_text:
            return pyarrow.array(values.tolist(), pyarrow.string())
        array = pyarrow.array(values.reshape(-1))
        for width in reversed(column.shape):
            array = pyarrow.FixedSizeListArray.from_arrays(array, width)
        if not column.per_token:
            return array
        offset = block.file.offset[block.begin:block.end + 1]
        return pyarrow.LargeListArray.from_arrays(pyarrow.array(offset - offset[0]), array)

    with open_results(path, partial) as results:
        names = list(results.columns if columns is None else columns)
        for block in results.blocks():
            yield pyarrow.RecordBatch.from_arrays([as_array(block, results.find_column(name)) for name in names], names=names)
