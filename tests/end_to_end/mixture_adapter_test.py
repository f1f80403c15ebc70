"""Adapters of mixtures as PEFT writes them since transformers 5 (factors of all experts stacked in one pair, ranks and alphas by patterns)
against PEFT's model: for each layout in which files hold experts, whole and in shards. Adapters that lack a part are refused.
"""
import json
import pathlib
import shutil
import sys
import tempfile
import unittest

import h5py
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

import tiny_world
from adapter_test import CONFIG, WEIGHTS, make_adapter

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "oracle"))
import tiny_models  # noqa: E402

EXPERIMENT = """name: {name}
output: {{directory: {runs}}}
model: {{path: {model}, dtype: f32}}
layout: {{devices: cpu}}
tasks: [{{task: teacher_logits, dataset: {{path: {data}, key: id, tokens: ids}}, max_length: 64, top_k: 8}}]
"""
BOTH = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
PATTERNS = {"rank_pattern": {"layers.0.self_attn.q_proj": 2, r"mlp\.experts\.down_proj": 3, "gate_up_proj": 5},
            "alpha_pattern": {r"^model.layers.[12].self_attn.v_proj": 40, r".*\.0\.mlp\.(experts|gate)\..*": 30, "q_proj|o_proj": 3}}
# Variant, its name in files (fused: as the modules hold it), and the adapter.
CASES = {
    "mixtral": ("mixtral", False, {"target_modules": ["q_proj"], "target_parameters": BOTH}),
    "mixtral, all by their old names": ("mixtral", False, {"target_modules": ["q_proj", "w1", "w2", "w3", "gate"]}),
    "mixtral, fused": ("mixtral", True, {"target_modules": ["v_proj"], "target_parameters": [*BOTH, "mlp.gate.weight"], "use_rslora": True}),
    "qwen3_moe": ("qwen3_moe", False, {"target_modules": "all-linear", "r": 2}),
    "qwen3_moe, patterns": ("qwen3_moe", False, {"target_modules": ["q_proj", "v_proj"], "target_parameters": [*BOTH, "gate.weight"], **PATTERNS}),
    "qwen3_moe, fused, patterns": ("qwen3_moe", True, {"target_modules": ["q_proj", "v_proj"], "target_parameters": [*BOTH, "gate.weight"], **PATTERNS}),
    "one of the two": ("olmoe", False, {"target_modules": ["o_proj"], "target_parameters": BOTH[1:]}),
    "gpt_oss": ("gpt_oss", False, {"target_modules": ["q_proj"], "target_parameters": BOTH}),
    "granitemoe": ("granitemoe", False, {"target_modules": ["q_proj"], "target_parameters": ["experts.gate_up_proj", "experts.down_proj", "router.weight"]}),
    "dense, patterns": ("qwen3", False, {"target_modules": ["q_proj", "v_proj", "down_proj"], "alpha_pattern": {r"layers\.\d+\.mlp\.down_proj": 20, "model.layers.0": 9},
                                         "rank_pattern": {"^model.layers.1.self_attn.q_proj$": 6}, "use_rslora": True})}


class MixtureAdapter(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.world = tiny_world.World(cls.folder, records=1, text=EXPERIMENT)
        cls.lists = tiny_models.sequences(320, (9, 30))
        cls.world.data.write_text("".join(json.dumps({"id": str(i), "ids": ids}) + "\n" for i, ids in enumerate(cls.lists)))

    def model(self, variant, fused):
        folder = self.folder / f"{variant}{'-fused' if fused else ''}"
        if not folder.exists():
            made = tiny_models.make(self.folder / "made", variant)
            shutil.copytree(made, folder)
            if fused:
                AutoModelForCausalLM.from_pretrained(made, dtype=torch.float32).save_pretrained(folder, save_original_format=False)
                self.assertTrue(any(name.endswith("experts.gate_up_proj") for name in load_file(folder / "model.safetensors")))
        self.world.model = folder
        return folder

    def adapter(self, case):
        variant, fused, config = CASES[case]
        folder = self.folder / ("adapter " + case)
        return folder, make_adapter(folder, self.model(variant, fused), 3, 0.2, **{"r": 4, "lora_alpha": 8, **config})

    def logprobs(self, name, *arguments):
        self.world.complete(name, 0, *arguments)
        with h5py.File(self.world.results(name)) as file:
            return torch.from_numpy(file["teacher/target_logprob"][:]), file["samples/offset"][:].astype(int)

    def apart(self, model, found, offset):
        worst = 0.0
        for begin, ids in zip(offset, self.lists):
            with torch.no_grad():
                want = model(torch.tensor([ids])).logits[0, :-1].double().log_softmax(-1).gather(1, torch.tensor(ids[1:]).unsqueeze(1))[:, 0]
            worst = max(worst, (want - found[begin:begin + len(ids) - 1].double()).abs().max().item())
        return worst

    def test_log_probs_are_peft_s(self):
        for number, case in enumerate(CASES):
            with self.subTest(case=case):
                folder, adapted = self.adapter(case)
                for shards in (1, 2):
                    found, offset = self.logprobs(f"run-{number}-{shards}", f"model.adapter={folder}", f"layout.shards_per_rank={shards}")
                    apart = self.apart(adapted, found, offset)
                    with adapted.disable_adapter():
                        without = self.apart(adapted, found, offset)
                    print(f"{case}, {shards}: {apart:.1e}, without the adapter {without:.1e}")
                    self.assertLess(apart, 1e-4)
                    self.assertGreater(without, 0.05)

    def test_rslora_of_each_expert_is_the_formula(self):
        """The weights are added by hand: PEFT multiplies the scale of w1 and w3 by the square root of 2 (findings/peft_rslora_of_fused_experts.sh)."""
        model = AutoModelForCausalLM.from_pretrained(self.model("mixtral", False), dtype=torch.float32)
        random, factors, rank, alpha = torch.Generator().manual_seed(5), {}, 4, 2
        for number, layer in enumerate(model.model.layers):
            experts, width = layer.mlp.experts, model.config.intermediate_size
            for expert in range(model.config.num_local_experts):
                gate_up, down = experts.gate_up_proj.data[expert], experts.down_proj.data[expert]
                for name, weight in (("w1", gate_up[:width]), ("w3", gate_up[width:]), ("w2", down)):
                    b, a = (0.3 * torch.randn(shape, generator=random) for shape in ((weight.shape[0], rank), (rank, weight.shape[1])))
                    weight += alpha / rank**0.5 * b @ a
                    of = f"base_model.model.model.layers.{number}.block_sparse_moe.experts.{expert}.{name}"
                    factors |= {f"{of}.lora_A.weight": a, f"{of}.lora_B.weight": b}
        folder = self.folder / "of each expert"
        folder.mkdir()
        save_file(factors, folder / WEIGHTS)
        (folder / CONFIG).write_text(json.dumps({"peft_type": "LORA", "r": rank, "lora_alpha": alpha, "use_rslora": True, "target_modules": ["w1", "w2", "w3"]}))
        for shards in (1, 2):
            apart = self.apart(model, *self.logprobs(f"each-{shards}", f"model.adapter={folder}", f"layout.shards_per_rank={shards}"))
            print(f"{shards}: {apart:.1e}")
            self.assertLess(apart, 1e-4)

    def refused(self, folder, *words):
        done = self.world.run("refused", 0, f"model.adapter={folder}")
        self.assertEqual(done.returncode, 65, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)

    def test_refusals(self):
        folder, _ = self.adapter("qwen3_moe, patterns")
        whole, config = load_file(folder / WEIGHTS), json.loads((folder / CONFIG).read_text())
        bad = self.folder / "bad"

        def put(weights, **changes):
            shutil.rmtree(bad, ignore_errors=True)
            shutil.copytree(folder, bad)
            save_file(weights, bad / WEIGHTS)
            (bad / CONFIG).write_text(json.dumps({**config, **changes}))
            return bad
        sparse = next(name[:-len(".lora_A.weight")] for name in whole if name.endswith("experts.lora_A.weight"))
        self.refused(put({name: tensor for name, tensor in whole.items() if not name.startswith(sparse + ".lora")}), "target_parameters names mlp.experts.down_proj")
        self.refused(put({**whole, sparse + ".lora_B.weight": torch.zeros(63, 24)}), "changes experts with 40 inputs and 63 outputs")
        self.refused(put({**whole, sparse + ".lora_A.weight": torch.zeros(16, 40)}), "has rank 16", "for each of 8 experts")
        again = {sparse + f".base_layer.base_layer.lora_{factor}.weight": whole[sparse + f".lora_{factor}.weight"].clone() for factor in "AB"}
        self.refused(put({**whole, **again}), "does not have")
        twice = {sparse + f".base_layer.lora_{factor}.weight": whole[sparse + f".lora_{factor}.weight"].clone() for factor in "AB"}
        self.refused(put({**whole, **twice}), "changes, too")
        self.refused(put(whole, alpha_pattern={r"layers\.(?!1)": 3}), 'alpha_pattern has the pattern', "?!", "merge_and_unload")
        self.refused(put(whole, rank_pattern={"q_proj": 0}), "rank_pattern is")
        self.refused(put(whole, rank_pattern={}), "(its scale would be wrong)")
        self.model("olmoe", False)
        self.refused(folder, "does not have (the adapter is of another model")


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
