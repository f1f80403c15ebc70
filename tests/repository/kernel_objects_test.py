"""Object files for an instruction set of their own define no function that the linker may take for the whole program: a
template's function that several files compile is kept once, and on a CPU without these instructions the program would die.
"""
import os
import pathlib
import subprocess
import unittest

OBJECTS = pathlib.Path(os.environ["MAGISTER_BUILD_DIR"]) / "CMakeFiles/magister_model.dir/src/model/cpu/kernels"
ENDINGS = ("_avx512.cpp.o", "_avx512vnni.cpp.o", "_avx512bf16.cpp.o", "_amx.cpp.o")


def weak_functions(symbols):
    """Of the lines of nm; references to personality routines are no functions."""
    lines = [line.split(maxsplit=2) for line in symbols.splitlines()]
    return [line[2] for line in lines if len(line) == 3 and line[1] in "VWuw" and not line[2].startswith("DW.ref.")]


class KernelObjects(unittest.TestCase):
    def test_no_function_is_weak(self):
        objects = sorted(path for path in OBJECTS.iterdir() if path.name.endswith(ENDINGS))
        self.assertEqual(len(objects), len(ENDINGS), objects)
        for path in objects:
            with self.subTest(path.name):
                symbols = subprocess.run(["nm", "-C", "--defined-only", path], check=True, capture_output=True, text=True).stdout
                self.assertIn(" T ", symbols)
                self.assertEqual(weak_functions(symbols), [])

    def test_weak_functions_are_seen(self):
        self.assertEqual(weak_functions("0000 W std::vector<float>::~vector()\n0000 V DW.ref.__gxx_personality_v0\n0000 T multiply(int)\n"),
                         ["std::vector<float>::~vector()"])


if __name__ == "__main__":
    unittest.main()
