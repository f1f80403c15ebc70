"""The kernels as nvcc made them, read without a GPU: every one for all three architectures, none that spills, and those that move
much do so 16 bytes at a time. Instructions of the decode products are counted: on a multiprocessor of an H200 0.85, 0.72 and 0.60
of 4.3 TB/s leave room for 260, 305 and 356 for 1 KB of bf16, int8 and int4 weights.
"""
import collections
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

PROGRAM = os.environ["MAGISTER"]
ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
SKIPPED = 77


def disassembler():
    """cuobjdump of a toolkit, or that of NVIDIA's wheel; it starts the nvdisasm beside it."""
    wheel = next((str(path) for path in pathlib.Path(sys.prefix).glob("lib/python3*/site-packages/nvidia/cu13/bin")), "")
    return shutil.which("cuobjdump", path=os.pathsep.join([wheel, os.environ["PATH"]]))


def dump(*options):
    program = disassembler()
    path = os.pathsep.join([str(pathlib.Path(program).parent), os.environ["PATH"]])
    return subprocess.run([program, *options, PROGRAM], capture_output=True, text=True, check=True, timeout=1200, env={**os.environ, "PATH": path}).stdout


def kernel_names(mangled):
    """-> {mangled: "DecodeProduct<4, 1, 0, 1, 1, true>"}"""
    demangled = subprocess.run(["c++filt"], input="\n".join(mangled), capture_output=True, text=True, check=True).stdout.splitlines()
    names = {}
    for symbol, name in zip(mangled, demangled):
        inner = re.sub(r"^void magister::gpu::run_kernel<(.*)>\(.*$", r"\1", name).strip()
        names[symbol] = inner.replace("magister::gpu::", "").replace("(magister::CodeFormat::Offset)", "")
    return names


def resources():
    """-> {architecture: {kernel: {"REG": ..., "STACK": ..., "LOCAL": ...}}}"""
    found = collections.defaultdict(dict)
    architecture = symbol = None
    for line in dump("--dump-resource-usage").splitlines():
        if line.startswith("arch = "):
            architecture = line.split()[-1]
        elif match := re.match(r"\s*Function (\S+):", line):
            symbol = match.group(1)
        elif "REG:" in line:
            found[architecture][symbol] = {key: int(value) for key, value in re.findall(r"(REG|STACK|LOCAL):(\d+)", line)}
    names = kernel_names(sorted({symbol for kernels in found.values() for symbol in kernels}))
    return {arch: {names[symbol]: use for symbol, use in kernels.items()} for arch, kernels in found.items()}


def instructions():
    """-> {kernel: [(address, text)]} for sm_90."""
    found, symbol = {}, None
    for line in dump("-sass", "-arch", "sm_90").splitlines():
        if match := re.search(r"Function : (\S+)", line):
            symbol = match.group(1)
            found[symbol] = []
        elif match := re.match(r"\s+/\*([0-9a-f]{4,})\*/\s+(.*?);", line):
            found[symbol].append((int(match.group(1), 16), match.group(2)))
    names = kernel_names(list(found))
    return {names[symbol]: code for symbol, code in found.items()}


def operation(text):
    words = text.split()
    return words[1] if words[0].startswith("@") else words[0]


def back_jumps(code):
    """-> [(first address of a loop, last)]"""
    return [(int(match.group(1), 16), address) for address, text in code
            if (match := re.search(r"BRA 0x([0-9a-f]+)", text)) and int(match.group(1), 16) < address]


def loops_of(code):
    return [[text for address, text in code if first <= address <= last] for first, last in back_jumps(code)]


def main_loop(code):
    """The smallest loop with all products of the tensor cores that stand in loops."""
    return max(loops_of(code), key=lambda loop: (sum("HMMA" in text for text in loop), -len(loop)))


class DeviceCode(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.resources = resources()
        cls.code = instructions()

    def test_every_kernel_is_there_for_every_architecture(self):
        self.assertEqual(set(self.resources), set(ARCHITECTURES))
        kernels = {arch: set(found) for arch, found in self.resources.items()}
        self.assertGreater(len(kernels["sm_90"]), 100)
        self.assertEqual(kernels["sm_80"], kernels["sm_90"])
        self.assertEqual(kernels["sm_100"], kernels["sm_90"])
        self.assertRegex(dump("--list-ptx"), r"sm_90\.ptx")

    def test_nothing_spills(self):
        for arch, kernels in self.resources.items():
            for name, use in kernels.items():
                self.assertEqual(use["LOCAL"], 0, f"{arch} {name}")
                self.assertLessEqual(use["STACK"], 0 if arch == "sm_90" else 8, f"{arch} {name}")
        for name, use in self.resources["sm_90"].items():
            if re.match(r"DecodeProduct<\d+, \d, 0, 1, |WideProduct<16, 1, 0, 4>", name):
                self.assertLessEqual(use["REG"], 128, f"{name}: two blocks of 256 threads must fit")
            if name.startswith("RingProduct<"):
                self.assertLessEqual(use["REG"], 64 if re.match(r"RingProduct<(16, 1, \d|[84], 1, 1),", name) else 128, f"{name}: one or two blocks of 512 threads")

    def test_what_moves_much_moves_16_bytes(self):
        def count(name, prefix):
            return sum(operation(text).startswith(prefix) and ".128" in operation(text) for _, text in self.code[name])
        for name, loads, stores in (("GateMultiply<Bf16>", 2, 1), ("AddNorm<Bf16, false, Bf16>", 4, 3), ("AddNorm<Bf16, false, float>", 5, 3), ("NormRows<Bf16>", 2, 1), ("EmbedRows<Bf16>", 1, 2), ("SumExperts<Bf16>", 1, 1), ("SumHeadSquares<Bf16>", 2, 0), ("NormHeads<Bf16>", 3, 1), ("Dequantize<8, Bf16>", 0, 4),
                                    ("Dequantize<4, Bf16>", 0, 4), ("QuantizeRows<Bf16>", 2, 0), ("NormQuantize<Bf16>", 5, 2), ("NormQuantize<float>", 6, 2), ("GateQuantize", 2, 0), ("WidenExperts", 4, 8), ("WantedLogits", 4, 0), ("GatherKeys<Bf16>", 4, 4), ("ReduceLogits", 8, 0),
                                    ("TrainNorm<float, Bf16>", 5, 1), ("TrainNormBack<float, Bf16>", 8, 2), ("TrainNormBack<Bf16, Bf16>", 6, 2), ("TurnHeads<Bf16, Bf16>", 6, 2), ("TrainGate<Bf16>", 2, 1),
                                    ("TrainGateBack<Bf16>", 3, 2), ("EncoderAttention<false>", 0, 4), ("EncoderAttention<true>", 0, 4), ("RowNumbers", 2, 0), ("LogitGradient<Bf16>", 2, 1)):
            self.assertGreaterEqual(count(name, "LDG"), loads, name)
            self.assertGreaterEqual(count(name, "STG"), stores, name)

    def test_instructions_of_a_product_with_one_row(self):
        for name, most in (("DecodeProduct<16, 1, 0, 1, 1, true>", 62), ("DecodeProduct<8, 1, 0, 1, 1, true>", 155),
                           ("DecodeProduct<8, 2, 0, 1, 1, true>", 210), ("DecodeProduct<4, 1, 0, 1, 1, true>", 205),
                           ("DecodeProduct<4, 4, 0, 1, 1, true>", 320)):
            loop = main_loop(self.code[name])
            weights = sum(operation(text).startswith("LDG") and ".NA" in operation(text) for text in loop)
            self.assertEqual(weights, 8, f"{name}: four steps of 16 bytes of two outputs")
            a_kilobyte = len(loop) / 4
            print(f"   {name}: {a_kilobyte:.0f} instructions for 1 KB of weights")
            self.assertLessEqual(a_kilobyte, most, name)
            self.assertFalse([text for text in loop if operation(text).startswith(("LDL", "STL"))], name)

    def test_a_product_of_few_rows_waits_for_its_own_step(self):
        """Copies in groups end in order: all but the oldest step stay in flight. Loads to registers would share a counter."""
        for format, most in (("16, 1", 72), ("8, 1", 165), ("8, 2", 200), ("4, 1", 225), ("4, 2", 270), ("4, 4", 300)):
            for end in ("StoredEnds", "GateEnds", "RotatedEnds"):
                self.check_ring(f"RingProduct<{format}, 1, {end}>", most)

    def check_ring(self, name, most):
        loop = main_loop(self.code[name])
        left = 1 if "<4" in name else 2
        self.assertEqual([text.strip() for text in loop if "DEPBAR" in text and "LDG" not in text], [f"DEPBAR.LE SB0, {left:#x}"], name)
        self.assertEqual([text for text in loop if operation(text).startswith(("LDG.", "LDL", "STL"))], [], name)
        copies = [text for text in loop if operation(text).startswith("LDGSTS")]
        self.assertEqual(len(copies), {"<1": 3, "<8": 4, "<4": 6}[name[11:13]], f"{name}: 16 bytes of weights twice and of x")
        print(f"   {name}: {len(loop)} instructions for 1 KB of weights")
        self.assertLessEqual(len(loop), most, name)
        asked = sum(operation(text).startswith("UBLKPF") for _, text in self.code[name])
        self.assertGreaterEqual(asked, 1, f"{name}: words for the L2 cache")

    def test_products_of_many_rows_copy_past_the_registers(self):
        for name, products, most in (("WideProduct<16, 1, 0, 8>", 32, 470), ("WideProduct<16, 1, 0, 4>", 16, 330),
                                     ("WideProduct<8, 1, 0, 4>", 32, 560), ("WideProduct<4, 1, 0, 4>", 64, 740)):
            loop = main_loop(self.code[name])
            count = collections.Counter(operation(text) for text in loop)
            self.assertEqual(sum(number for key, number in count.items() if key.startswith("HMMA")), products, name)
            copies = sum(number for key, number in count.items() if key.startswith("LDGSTS"))
            self.assertEqual(copies, sum(number for key, number in count.items() if key.startswith("LDGSTS") and ".128" in key), name)
            self.assertGreaterEqual(copies, 3, f"{name}: 16 bytes of weights twice and of x")
            self.assertFalse([key for key in count if key.startswith(("LDL", "STL"))], name)
            print(f"   {name}: {len(loop)} instructions for {products} products of the tensor cores, a chain's end among them")
            self.assertLessEqual(len(loop), most, name)

    def test_experts_of_prompts_are_bound_by_their_products(self):
        """A step of two warps of a scheduler takes 810 cycles of the tensor cores of an H200, and an instruction a cycle. Decision 061 counts on 0.8 of the products' rate."""
        loop = main_loop(self.code["ExpertProduct"])
        operations = [operation(text) for text in loop]
        self.assertEqual(sum(one.startswith("HMMA") for one in operations), 64)
        self.assertEqual(sum(one.startswith("LDSM") for one in operations), 16, "factors come as four matrices at a time")
        copies = [one for one in operations if one.startswith("LDGSTS")]
        self.assertTrue(copies and all(".128" in one for one in copies), "x and weights come 16 bytes at a time")
        print(f"   ExpertProduct: {len(loop)} instructions for 64 products of the tensor cores")
        self.assertLessEqual(len(loop), 200, "two warps would issue for half of the time that their products take")
        code = self.code["FloatExpertProduct"]
        chunk = max(loops_of(code), key=lambda loop: sum(operation(text).startswith("FFMA") for text in loop) / len(loop))
        sums = sum(operation(text).startswith("FFMA") for text in chunk)
        print(f"   FloatExpertProduct: {len(chunk)} instructions for {sums} products")
        self.assertLessEqual(len(chunk), 1.15 * sums, "of a device that issues one product or another instruction")
        self.assertLessEqual(self.resources["sm_90"]["FloatExpertProduct"]["REG"], 128, "two blocks of 256 threads must fit")

    def test_products_of_codes_are_bound_by_their_products(self):
        """Half a step of two warps of a scheduler takes 1,010 cycles of the tensor cores of an H200, and an instruction a cycle; decision 063 counts on these instructions."""
        for name, most in (("CodeProduct<8, true>", 310), ("CodeProduct<8, false>", 390), ("CodeProduct<4, false>", 445)):
            loop = main_loop(self.code[name])
            operations = [operation(text) for text in loop]
            self.assertEqual(sum(one.startswith("HMMA") for one in operations), 80, name)
            self.assertGreaterEqual(sum(one.startswith("LDS.128") for one in operations), 10, f"{name}: x of 80 rows")
            self.assertFalse([one for one in operations if one.startswith(("LDL", "STL", "STS", "LDG"))], f"{name}: codes are widened in registers")
            copies = [operation(text) for _, text in self.code[name] if operation(text).startswith("LDGSTS")]
            self.assertTrue(copies and all(".128" in one for one in copies), f"{name}: x and codes come 16 bytes at a time")
            print(f"   {name}: {len(loop)} instructions for 80 products of the tensor cores")
            self.assertLessEqual(len(loop), most, name)

    def test_attention_of_encoders(self):
        """A step of four numbers of a head has 64 multiplications of its 16 scores, and 192 with distances; decision 035 counts on these instructions."""
        for name, products, loads, most in (("EncoderAttention<false>", 64, 8, 85), ("EncoderAttention<true>", 192, 22, 235)):
            code = self.code[name]
            loop = max(loops_of(code), key=lambda loop: (sum("FFMA" in text for text in loop) == products, -len(loop)))
            operations = [operation(text) for text in loop]
            self.assertEqual(sum(one.startswith("FFMA") for one in operations), products, name)
            self.assertEqual([one for one in operations if one.startswith("LDS")], ["LDS.128"] * loads, name)
            copies = [operation(text) for _, text in code if operation(text).startswith("LDGSTS")]
            self.assertTrue(copies and all(".128" in one for one in copies), name)
            self.assertFalse([text for _, text in code if operation(text).startswith(("HMMA", "LDL", "STL"))], f"{name}: f32, in registers")
            print(f"   {name}: {len(loop)} instructions for {products} multiplications")
            self.assertLessEqual(len(loop), most, name)
            self.assertLessEqual(self.resources["sm_90"][name]["REG"], 128, f"{name}: two blocks of 256 threads must fit")

    def test_grouped_attention_copies_past_the_registers(self):
        """A page of an H200's multiprocessor takes 1,490 cycles of four schedulers at E = 128 and 4.3 TB/s, 745 at E = 64; half of them in codes."""
        for name, products, copies, most in (("GroupedAttention<128, 128, 1, false>", 72, 48, 1900), ("GroupedAttention<128, 128, 2, false>", 144, 48, 2900),
                                             ("GroupedAttention<64, 64, 1, false>", 36, 24, 1500), ("GroupedAttention<256, 256, 1, false>", 288, 192, 4500),
                                             ("GroupedAttention<128, 128, 1, true>", 72, 26, 2700), ("GroupedAttention<128, 128, 2, true>", 144, 26, 3500),
                                             ("GroupedAttention<64, 64, 1, true>", 36, 14, 1800), ("GroupedAttention<256, 256, 1, true>", 144, 50, 4300)):
            operations = [operation(text) for _, text in self.code[name]]
            self.assertEqual(sum(one.startswith("HMMA") for one in operations), products, name)
            staged = [one for one in operations if one.startswith("LDGSTS")]
            self.assertTrue(all(".128" in one for one in staged), name)
            self.assertLessEqual(copies, len(staged), f"{name}: keys and values of a page")
            chunk = max(sum(first <= address <= last for address, _ in self.code[name]) for first, last in back_jumps(self.code[name]))
            print(f"   {name}: {chunk} instructions for a warp's part of a chunk, {products} products of the tensor cores among them")
            self.assertLessEqual(chunk, most, name)


if __name__ == "__main__":
    if b".nv_fatbin" not in pathlib.Path(PROGRAM).read_bytes():
        print("skipped: the program was built without GPU code")
        sys.exit(SKIPPED)
    if disassembler() is None or shutil.which("c++filt") is None:
        print("skipped: neither a CUDA toolkit nor triton has put a cuobjdump here")
        sys.exit(SKIPPED)
    sys.exit(unittest.main(verbosity=2))
