#!/usr/bin/env bash
# Believed: MatryoshkaLoss of sentence-transformers computes the loss that it is given at several lengths of the embeddings. With the full length alone it is the loss itself.
# Packages: sentence-transformers 6.2.0, transformers 5.24.0, torch 2.15.0 (PyPI).
# Behaviour: it shortens embeddings and divides them by their lengths as well, the full ones, too, which its documentation does not tell. Losses of cosines do not mind, others become other
#   losses: TripletLoss, whose default margin of 5 is of Euclidean distances, gets distances of at most 2 and cannot fall under 3, however well the triplets lie;
#   MarginMSELoss, whose dot products are to have the margins of a teacher, gets margins of -2 to 2; MSELoss compares units with embeddings of the teacher that are as long as they are. No
#   warning.
# Seen, a small random BERT with mean pooling, 24 texts a column, margins of 4 to 12 for MarginMSELoss; by hand both losses are the plain one and the one of units:
#                                                            plain       in MatryoshkaLoss of the full length
#     TripletLoss at the beginning                           5.031       5.005
#     TripletLoss, 200 steps                                 0           3.00
#     MarginMSELoss at the beginning                         66.4        56.8
#     MarginMSELoss, 200 steps                               3e-09       32.1, and the margins' own error is 3710
#     MSELoss of a model to its own embeddings               0           0.607, and 1.55 with lengths 32, 16 and 8
#     MultipleNegativesRankingLoss, of cosines               5.2743      5.2743
# Matters: a distillation of scores within MatryoshkaLoss learns no scores, and a triplet loss never says that its triplets are learnt. The download is large: torch.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check --no-compile --no-deps sentence-transformers==6.2.0 scikit-learn==1.9.1 scipy==1.17.1 joblib==1.6.0 cloudpickle==3.1.3 threadpoolctl==3.8.0 narwhals==2.29.0 torch==2.15.0 \
  nvidia-cublas==13.4.1.3 nvidia-cuda-cupti==13.2.86 nvidia-cuda-nvrtc==13.2.86 nvidia-cuda-runtime==13.2.86 nvidia-cudnn-cu13==9.26.0.51 nvidia-cufft==12.2.0.57 nvidia-cufile==1.17.1.22 \
  nvidia-cusolver==12.2.0.11 nvidia-cusparse==12.7.10.12 nvidia-cusparselt-cu13==0.8.1 nvidia-nccl-cu13==2.30.7 nvidia-nvjitlink==13.5.37 nvidia-nvshmem-cu13==3.7.2 nvidia-nvtx==13.2.86 triton==3.9.0 \
  typing-extensions==4.16.0 filelock==4.3.1 sympy==1.14.0 mpmath==1.3.0 networkx==3.6.1 jinja2==3.1.6 markupsafe==3.0.4 fsspec==2026.9.0 numpy==2.4.6 \
  transformers==5.24.0 tokenizers==0.23.3 safetensors==0.8.0 huggingface-hub==2.4.0 hf-xet==1.8.0 regex==2026.11.19 pyyaml==6.0.4 packaging==26.4 tqdm==4.70.1 httpx2==2.16.2 httpcore2==2.16.2 anyio==4.16.0 \
  h11==0.16.0 idna==3.20 certifi==2026.10.19.post1 truststore==0.10.5 typer==0.29.2 click==8.5.1 rich==15.0.0 pygments==2.21.0 markdown-it-py==4.3.0 mdurl==0.1.2 annotated-doc==0.0.7 requests==2.34.2 \
  charset-normalizer==3.5.3 urllib3==2.8.0
"$folder/venv/bin/python" - 2> "$folder/log" <<'PYTHON' || { cat "$folder/log"; exit 1; }
import random
import sys
import tempfile

import torch
import torch.nn.functional as F
import transformers
from sentence_transformers import SentenceTransformer, losses, models
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers import models as kinds

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)
WIDTH, COUNT = 32, 24
random.seed(0)
TEXTS = [[" ".join(f"w{random.randrange(3, 60)}" for _ in range(random.randrange(3, 9))) for _ in range(COUNT)] for _ in range(3)]


def make(folder, seed):
    """A model of sentences with a small random BERT."""
    torch.manual_seed(seed)
    words = Tokenizer(kinds.WordLevel({f"w{number}": number for number in range(60)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="w0", unk_token="w0").save_pretrained(folder)
    bert = transformers.BertModel(transformers.BertConfig(vocab_size=60, hidden_size=WIDTH, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, hidden_dropout_prob=0.0,
                                                          attention_probs_dropout_prob=0.0, initializer_range=0.3))
    bert.save_pretrained(folder)
    layer = models.Transformer(folder)
    return SentenceTransformer(modules=[layer, models.Pooling(WIDTH)], device="cpu")


def inputs(model, columns):
    return [model.preprocess(texts) for texts in TEXTS[:columns]]


def step(model, loss, columns, labels=None):
    """The loss and the norm of its gradient."""
    model.zero_grad()
    value = loss(inputs(model, columns), labels)
    value.backward()
    return value.item(), torch.cat([weight.grad.flatten() for weight in model.parameters() if weight.grad is not None]).norm().item()


def trained(folder, kind, labels, dims):
    """The loss after 200 steps, for the model as it is and by the loss of all dimensions around it."""
    model = make(folder, 0)
    plain = kind(model)
    loss = plain if dims is None else losses.MatryoshkaLoss(model, plain, dims)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3, weight_decay=0.0)
    for _ in range(200):
        step(model, loss, 3, labels)
        optimizer.step()
    return plain(inputs(model, 3), labels).item(), loss(inputs(model, 3), labels).item()


as_seen = True
with tempfile.TemporaryDirectory() as folder:
    model = make(folder, 0)
    with torch.no_grad():
        anchors, near, far = (model(features)["sentence_embedding"] for features in inputs(model, 3))
        units = [F.normalize(part, dim=1) for part in (anchors, near, far)]
    margins = 4 + 8 * torch.rand(COUNT)
    # Each loss by hand, of the embeddings and of the same with length 1.
    by_hand = {"TripletLoss": lambda one, two, three: F.relu((one - two).norm(dim=1) - (one - three).norm(dim=1) + 5).mean(),
               "MarginMSELoss": lambda one, two, three: (((one * two).sum(1) - (one * three).sum(1) - margins) ** 2).mean()}
    for name, labels in (("TripletLoss", None), ("MarginMSELoss", margins)):
        kind = getattr(losses, name)
        (plain, _), (inside, _) = step(model, kind(model), 3, labels), step(model, losses.MatryoshkaLoss(model, kind(model), [WIDTH]), 3, labels)
        model = make(folder, 0)
        right, of_units = by_hand[name](anchors, near, far).item(), by_hand[name](*units).item()
        ends, ends_inside = trained(folder, kind, labels, None), trained(folder, kind, labels, [WIDTH])
        print(f"{name}: plain {plain:.4g}, by hand {right:.4g}; in MatryoshkaLoss of all dimensions {inside:.4g}, by hand of units {of_units:.4g}; after 200 steps plain {ends[0]:.3g}, in MatryoshkaLoss {ends_inside[1]:.3g}, "
              f"of which the plain loss is {ends_inside[0]:.3g}")
        as_seen = as_seen and abs(plain / right - 1) < 1e-3 and abs(inside / of_units - 1) < 1e-3 and abs(inside / plain - 1) > 0.003
        as_seen = as_seen and ends[0] < 0.1 and ends_inside[1] > 2.9
    teacher = anchors
    for dims in (None, [WIDTH], [WIDTH, 16, 8]):
        loss = losses.MSELoss(model) if dims is None else losses.MatryoshkaLoss(model, losses.MSELoss(model), dims)
        value = step(model, loss, 1, teacher)[0]
        print(f"MSELoss of a model to its own embeddings, Matryoshka dimensions {dims}: {value:.3g}")
        as_seen = as_seen and (value < 1e-10 if dims is None else value > 0.1)
    (plain, norm), (inside, inside_norm) = (step(model, loss, 3) for loss in (losses.MultipleNegativesRankingLoss(model), losses.MatryoshkaLoss(model, losses.MultipleNegativesRankingLoss(model), [WIDTH])))
    print(f"MultipleNegativesRankingLoss, of cosines: plain {plain:.5g}, in MatryoshkaLoss {inside:.5g}; norms of the gradients {norm:.4g} and {inside_norm:.4g}")
    as_seen = as_seen and abs(plain - inside) < 1e-3
sys.exit(0 if as_seen else "MatryoshkaLoss treats embeddings in another way now")
PYTHON
