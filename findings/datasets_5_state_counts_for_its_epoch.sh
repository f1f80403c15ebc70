#!/usr/bin/env bash
# Believed: load_state_dict() of an IterableDataset of datasets tells where the next pass begins; the passes after it are whole. It is so with and without set_epoch(), which an unshuffled
#   data set does not need, and the same for any num_workers of torchdata's StatefulDataLoader, which the documentation shows with it.
# Packages: datasets 5.2.0, torchdata 0.11.0, torch 2.15.0 (PyPI).
# Behaviour: the state has the number of its epoch. A pass begins at the state if the data set has the same number, and every such pass does; else the state is not used and nothing says so.
#   Without set_epoch() all passes after a resumption lack what came before the state. A state of a later epoch is dropped unless set_epoch() is called before the first pass: all rows come again.
#   With workers of StatefulDataLoader the first loss does not happen (a worker gets the state once), the second does.
# Seen with 12 rows and a state after 4 of them: how many rows the passes have after it was loaded
#     state of epoch 0, no set_epoch(): 8, 8, 8       with set_epoch(0), (1), (2): 8, 12, 12
#     state of epoch 1, no set_epoch(): 12, 12        with set_epoch(1), (2): 8, 12
#     StatefulDataLoader, no set_epoch(), state of epoch 0: no workers: 8, 8, 8; 2 workers: 8, 12, 12       state of epoch 1: 12, 12, 12 with both
# Matters: a training that was resumed in its first epoch never sees the rows before that place again; one that was resumed in its second sees them twice. The download is large: torch.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check --no-compile --no-deps torchdata==0.11.0 torch==2.15.0 \
  nvidia-cublas==13.4.1.3 nvidia-cuda-cupti==13.2.86 nvidia-cuda-nvrtc==13.2.86 nvidia-cuda-runtime==13.2.86 nvidia-cudnn-cu13==9.26.0.51 nvidia-cufft==12.2.0.57 nvidia-cufile==1.17.1.22 \
  nvidia-cusolver==12.2.0.11 nvidia-cusparse==12.7.10.12 nvidia-cusparselt-cu13==0.8.1 nvidia-nccl-cu13==2.30.7 nvidia-nvjitlink==13.5.37 nvidia-nvshmem-cu13==3.7.2 nvidia-nvtx==13.2.86 triton==3.9.0 \
  typing-extensions==4.16.0 filelock==4.3.1 sympy==1.14.0 mpmath==1.3.0 networkx==3.6.1 jinja2==3.1.6 markupsafe==3.0.4 fsspec==2026.9.0 numpy==2.4.6 \
  huggingface-hub==2.4.0 hf-xet==1.8.0 pyyaml==6.0.4 packaging==26.4 tqdm==4.70.1 httpx2==2.16.2 httpcore2==2.16.2 anyio==4.16.0 \
  h11==0.16.0 idna==3.20 certifi==2026.10.19.post1 truststore==0.10.5 typer==0.29.2 click==8.5.1 rich==15.0.0 pygments==2.21.0 markdown-it-py==4.3.0 mdurl==0.1.2 annotated-doc==0.0.7 requests==2.34.2 \
  charset-normalizer==3.5.3 urllib3==2.8.0 datasets==5.2.0 pyarrow==26.0.1 pandas==3.1.1 python-dateutil==2.9.0.post0 six==1.17.0 dill==0.4.1 multiprocess==0.70.19 xxhash==4.1.0 \
  aiohttp==3.14.5 aiohappyeyeballs==2.7.1 aiosignal==1.4.0 attrs==26.1.0 frozenlist==1.8.0 multidict==7.2.1 propcache==0.5.4 yarl==1.25.1
"$folder/venv/bin/python" - 2> "$folder/log" <<'PYTHON' || { cat "$folder/log"; exit 1; }
import sys
import warnings

import torchdata.stateful_dataloader
from datasets import Dataset

warnings.simplefilter("ignore")


def rows():
    return Dataset.from_dict({"row": list(range(12))}).to_iterable_dataset(num_shards=2).with_format("torch")


def loader(workers):
    return torchdata.stateful_dataloader.StatefulDataLoader(rows(), batch_size=2, num_workers=workers)


def one_pass(source):
    found = []
    for item in source:
        found += item["row"].reshape(-1).tolist()
    return found


def state_after(source, data, epoch, items):
    for number in range(epoch):
        data.set_epoch(number)
        one_pass(source)
    data.set_epoch(epoch)
    iterator = iter(source)
    for _ in range(items):
        next(iterator)
    return source.state_dict()


def passes(source, data, state, epochs):
    """The rows of passes after a state is loaded; where a number of an epoch is given, it is set before the pass."""
    source.load_state_dict(state)
    found = []
    for epoch in epochs:
        if epoch is not None:
            data.set_epoch(epoch)
        found.append(one_pass(source))
    return found


WHOLE, REST = list(range(12)), list(range(4, 12))
as_seen = True
for epoch, epochs, expected in ((0, (None, None, None), [REST, REST, REST]), (0, (0, 1, 2), [REST, WHOLE, WHOLE]), (1, (None, None), [WHOLE, WHOLE]), (1, (1, 2), [REST, WHOLE])):
    first, second = rows(), rows()
    found = passes(second, second, state_after(first, first, epoch, 4), epochs)
    print(f"state of epoch {epoch}, epochs set to {epochs}: rows of the passes {[len(one) for one in found]}")
    as_seen = as_seen and found == expected
for workers, epoch, counts in ((0, 0, [8, 8, 8]), (2, 0, [8, 12, 12]), (0, 1, [12, 12, 12]), (2, 1, [12, 12, 12])):
    first, second = loader(workers), loader(workers)
    found = passes(second, second.dataset, state_after(first, first.dataset, epoch, 2), (None, None, None))
    print(f"StatefulDataLoader with {workers} workers, state of epoch {epoch}: rows of the passes {[len(one) for one in found]}")
    as_seen = as_seen and [len(one) for one in found] == counts
sys.exit(0 if as_seen else "a loaded state counts for other passes now")
PYTHON
