"""A family that only a test has (own_family.cpp) against transformers: every forward pass, over 1, 2 and 3 shards. The oracle is
Exaone4ForCausalLM; the folder is read with an invented model_type.

Norms on the blocks' outputs instead of their inputs, GELU instead of SiLU; f32 weights of realistic spread. Without own_family.cpp
the same model is refused by name.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

BUILD = pathlib.Path(os.environ["MAGISTER_BUILD_DIR"])
os.environ["FAMILIES_PROBE"] = str(BUILD / "tests/model/own_family_probe")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import families_test  # noqa: E402
import tiny_models  # noqa: E402

EXAONE4 = {"sliding_window": None, "layer_types": ["full_attention"] * 2}
tiny_models.VARIANTS.update({
    "exaone4_gelu": tiny_models.Variant("exaone4", {**EXAONE4, "hidden_act": "gelu_pytorch_tanh"}),
    "exaone4_silu_tied": tiny_models.Variant("exaone4", {**EXAONE4, "hidden_size": 72, "num_attention_heads": 9, "num_key_value_heads": 3,
                                                         "intermediate_size": 37, "tie_word_embeddings": True}),
})


def call_it_our_own(path):
    """The folder's config names the family of own_family.cpp."""
    config = pathlib.Path(path) / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "model_type": "output_norms", "architectures": ["OutputNormsForCausalLM"]}))


def load_reference(path, load=tiny_models.load_reference):
    """The oracle, from the folder as transformers wrote it; after that the folder has the invented name."""
    model = load(path)
    call_it_our_own(path)
    return model


tiny_models.load_reference = load_reference


class OwnFamily(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="magister_own_family_")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_equals_transformers(self):
        for name in ("exaone4_gelu", "exaone4_silu_tied"):
            self.assertEqual(families_test.check_variant(name, self.folder, ("1", "2", "3")), [])

    def test_is_unknown_elsewhere(self):
        path = tiny_models.make(self.folder, "exaone4_gelu")
        call_it_our_own(path)
        (self.folder / "tokens.json").write_text("[[1, 2]]")
        done = subprocess.run([BUILD / "tests/model/families_probe", path, self.folder / "tokens.json", self.folder, "1"],
                              input="", capture_output=True, text=True)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn('model_type is "output_norms"', done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
