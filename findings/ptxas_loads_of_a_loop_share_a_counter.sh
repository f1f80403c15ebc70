#!/usr/bin/env bash
# Believed: a thread that starts four loads to registers and uses the oldest while three are in flight (software pipelining) waits for
#   the oldest alone: sm_90 has six counters for loads (scoreboards), and a load names the one that it raises.
# Packages: nvidia-cuda-nvcc 13.0.88 with nvidia-nvvm and nvidia-cuda-crt 13.0.88, nvidia-cuda-runtime 13.0.96, nvidia-cuda-cuobjdump and
#   nvidia-cuda-nvdisasm 13.2.78 (PyPI). No GPU is needed.
# Behaviour: loads whose results are used after the loop's end was passed raise one counter, all of them, and a wait is for zero. So the
#   first use waits for the load that was started last, and nothing is in flight beyond one turn. Groups of asynchronous copies to
#   shared memory (cp.async) do not have this: their wait names how many groups may remain, and groups end in order.
# Seen: in the loop below four loads raise counter 5, and its first use waits for counter 5; with cp.async "DEPBAR.LE SB0, 0x3".
# Matters: a deeper pipeline by registers is not a faster one; a kernel that reads memory took a latency a step, whatever its depth.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-cuda-runtime==13.0.96 \
  nvidia-cuda-cuobjdump==13.2.78 nvidia-cuda-nvdisasm==13.2.78
cd "$folder"
cat >loops.cu <<'CUDA'
__device__ uint4 load(const uint4* from) {
  uint4 x;
  asm volatile("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "l"(from));
  return x;
}
extern "C" __global__ void by_registers(const uint4* in, unsigned* out, int steps) {
  const uint4* mine = in + threadIdx.x;
  uint4 ahead[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) ahead[i] = load(mine + i * 256);
  unsigned all = 0;
#pragma unroll 1
  for (int step = 0; step < steps; step += 4) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      all = all * 3 + (ahead[i].x ^ ahead[i].y ^ ahead[i].z ^ ahead[i].w);
      ahead[i] = load(mine + (step + i + 4) * 256);
    }
  }
  out[threadIdx.x] = all;
}
__device__ void copy(uint4* to, const uint4* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(to))), "l"(from) : "memory");
  asm volatile("cp.async.commit_group;" ::: "memory");
}
extern "C" __global__ void by_copies(const uint4* in, unsigned* out, int steps) {
  __shared__ uint4 ring[4][256];
  const uint4* mine = in + threadIdx.x;
  for (int i = 0; i < 4; ++i) copy(&ring[i][threadIdx.x], mine + i * 256);
  unsigned all = 0;
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    asm volatile("cp.async.wait_group 3;" ::: "memory");
    const uint4 now = ring[step % 4][threadIdx.x];
    all = all * 3 + (now.x ^ now.y ^ now.z ^ now.w);
    copy(&ring[step % 4][threadIdx.x], mine + (step + 4) * 256);
  }
  out[threadIdx.x] = all;
}
CUDA
cuda=$(echo "$folder"/venv/lib/python3*/site-packages/nvidia/cu13)
PATH="$cuda/bin:$PATH" "$cuda/bin/nvcc" -cubin -O3 -arch=sm_90 loops.cu -o loops.cubin
PATH="$cuda/bin:$PATH" "$cuda/bin/cuobjdump" -sass loops.cubin >loops.sass
python3 - <<'PYTHON'
import re, sys

# An instruction's control bits are the upper 23 of its 128: 4 for the stall, 1, 3 for the counter that it raises as it writes (7: none), 3, and 6
# for those that it waits for.
found, name, last = {}, None, None
for line in open("loops.sass", encoding="utf-8"):
    if match := re.search(r"Function : (\w+)", line):
        name = match.group(1)
        found[name] = []
    elif match := re.match(r"\s+/\*([0-9a-f]{4,})\*/\s+(.*?);\s+/\* 0x", line):
        last = (int(match.group(1), 16), match.group(2).strip())
    elif last and (match := re.match(r"\s+/\* 0x([0-9a-f]{16}) \*/", line)):
        control = int(match.group(1), 16) >> 41
        found[name].append((*last, control >> 5 & 7, [i for i in range(6) if control >> 11 + i & 1]))
        last = None

def loop_of(name):
    first, end = next((int(match.group(1), 16), address) for address, text, _, _ in found[name]
                      if (match := re.search(r"BRA 0x([0-9a-f]+)", text)) and int(match.group(1), 16) < address)
    return [entry for entry in found[name] if first <= entry[0] <= end]

registers, copies = loop_of("by_registers"), loop_of("by_copies")
raised = [counter for _, text, counter, _ in registers if "LDG" in text]
waited = next(waits for _, _, _, waits in registers if waits)
left = [text for _, text, _, _ in copies if text.startswith("DEPBAR")]
print(f"by registers: counters raised {raised}, the first wait is for {waited}; by copies: {left}")
if len(raised) != 4 or set(raised) != set(waited) or left != ["DEPBAR.LE SB0, 0x3"]: sys.exit("another behaviour than one counter for all loads of the loop")
PYTHON
echo "as seen before"
