#!/usr/bin/env bash
# Makes a folder that runs on a machine with only a C library, the NVIDIA driver and a Python with the torch wheel: the
# program, the GPU tests, their libraries, Open MPI, a tiny model with its data, and scripts/gpu_check.sh. usage:
#   scripts/bundle.sh [DIR]      DIR: default dist/gpu-bundle; BUILD=folder names another build than build/
# The result is the single file DIR.tar.xz; the folder itself is removed. On the other machine, unpacked (without xz:
# python3 -m tarfile -e DIR.tar.xz):
# DIR/scripts/gpu_check.sh, DIR/bin/mpirun -np 2 DIR/bin/magister run ...; MAGISTER_PYTHON names another interpreter
# than python3.
source "$(dirname "${BASH_SOURCE[0]}")/steps.sh"
target=${1:-dist/gpu-bundle}
build=${BUILD:-build}
most_bytes=$((64 << 20))
system_libraries=/usr/lib/x86_64-linux-gnu
python=.deps/venv/bin/python

# A single host, or a few over TCP, need neither InfiniBand nor UCX nor OpenSHMEM, which would double the bundle.
left_out='atomic|ofi|openib|ucx|psm|monitoring|memheap|spml|scoll|sshmem|vprotocol|flux|gridengine|simulator|romio|jsm|treematch|msgq|cm\.so'
# The C library's parts, which every machine has and which must be that machine's own.
of_the_c_library='^(ld-linux-x86-64|libc|libm|libpthread|libdl|librt|libresolv|libutil|libnsl|libanl)\.so'

place_programs() {
  step "program and tests"
  mkdir -p "$target"/{bin,libexec,lib/gcc}
  local program
  for program in "$build/magister" "$build/tests/gpu/test_gpu" "$build/tests/gpu/test_gpu_nccl"; do
    [ -x "$program" ] || die 74 "$program is not there (the bundle holds what was built); run scripts/build.sh first"
    cp "$program" "$target/libexec/"
  done
  cp scripts/bundle/* "$target/bin/"
  # Copies, since a link may be lost when a folder is copied elsewhere.
  for program in test_gpu test_gpu_nccl; do cp "$target/bin/magister" "$target/bin/$program"; done
}

# OPAL_PREFIX replaces /usr, so all files keep their place below it.
place_open_mpi() {
  step "Open MPI"
  local plugins=lib/x86_64-linux-gnu/openmpi/lib/openmpi3 pmix=lib/x86_64-linux-gnu/pmix2 plugin
  mkdir -p "$target/openmpi"/{bin,etc,share} "$target/openmpi/$plugins" "$target/openmpi/$pmix"/{lib,share}
  cp /usr/bin/orterun /usr/bin/orted "$target/openmpi/bin/"
  cp "$target/openmpi/bin/orterun" "$target/openmpi/bin/mpirun"
  cp -rL /etc/openmpi "$target/openmpi/etc/"
  cp -rL /usr/share/openmpi "$target/openmpi/share/"
  for plugin in "/usr/$plugins"/*.so; do
    [[ ${plugin##*/} =~ $left_out ]] || cp "$plugin" "$target/openmpi/$plugins/"
  done
  cp -rL "/usr/$pmix/lib/pmix" "$target/openmpi/$pmix/lib/"
  cp -rL "/usr/$pmix/share/"* "$target/openmpi/$pmix/share/"
}

# ldd also lists the libraries that libraries need. The compiler's own go to a separate folder, for machines with newer
# ones.
place_libraries() {
  step "libraries"
  local wheels name path
  wheels=$(realpath .deps/venv/lib/python3*/site-packages)
  find "$target/libexec" "$target/openmpi" -type f \( -name '*.so' -o -perm -u+x \) -exec ldd {} + 2>/dev/null |
    awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 } $2 == "=>" && $3 == "not" { print $1, "missing" }' | sort -u >"$target/libraries.txt"
  while read -r name path; do
    [[ ! $name =~ $of_the_c_library ]] || continue
    [ "$path" != missing ] || die 74 "$name is needed and not found here (ldd says so); install what brings it"
    case $(realpath "$path") in
      "$wheels"/*) continue ;;
    esac
    case $name in
      libstdc++.so.6 | libgcc_s.so.1) cp -L "$path" "$target/lib/gcc/$name" ;;
      *) cp -L "$path" "$target/lib/$name" ;;
    esac
  done <"$target/libraries.txt"
  rm "$target/libraries.txt"
  find "$target" -type f \( -name '*.so*' -o -path '*/libexec/*' -o -path '*/openmpi/bin/*' \) -exec strip --strip-unneeded {} +
  "$python" scripts/bundle_runpath.py "$target"/libexec/*
}

# The same places as in the source tree, so that the Python files find each other and the shapes.
place_checks() {
  step "checks, tiny model and data"
  local file
  for file in scripts/gpu_check.sh tests/gpu/tasks_test.py tests/end_to_end/tiny_world.py tests/bench/gpu_*.py \
    tests/bench/gpu_profile.cpp tests/bench/hf_gpu.py configs/shapes/*/config.json; do
    install -D "$file" "$target/$file"
  done
  MAGISTER=$build/magister MAGISTER_SOURCE_DIR=$MAGISTER_ROOT "$python" - "$target/tiny" >/dev/null <<'PYTHON'
import pathlib, sys
sys.path.insert(0, "tests/end_to_end")
import tiny_world
folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
# Shapes that flash attention and the decode kernels support: multiples of their block sizes.
tiny_world.make_model(folder / "model", hidden_size=128, intermediate_size=256, num_attention_heads=4, num_key_value_heads=2, head_dim=32)
tiny_world.make_records(folder / "data.jsonl", 60)
PYTHON
  "$python" - >"$target/bin/torch_version" <<'PYTHON'
import importlib.metadata
print(importlib.metadata.version("torch").split("+")[0])
PYTHON
}

rm -rf "$target"
mkdir -p "$target"
place_programs
place_open_mpi
place_libraries
place_checks
step_done
archive=$target.tar.xz
rm -f "$archive" "$archive".part-*
# The program and its tests hold the same kernels, 12 MB packed: a window that reaches from the one to the other keeps
# them once.
tar -C "$(dirname "$target")" --use-compress-program="xz --lzma2=preset=1,dict=64MiB" -cf "$archive" "$(basename "$target")"
unpacked_bytes=$(du -sb --apparent-size "$target" | cut -f1)
rm -rf "$target"
size_of() { du -sb --apparent-size "$1" | cut -f1; }
mebibytes() { awk -v b="$1" 'BEGIN { printf "%.1f MiB", b / 1048576 }'; }
printf '== %s: %s, unpacked %s; there: tar xJf %s && %s/scripts/gpu_check.sh\n' "$archive" "$(mebibytes "$(size_of "$archive")")" \
  "$(mebibytes "$unpacked_bytes")" "$(basename "$archive")" "$(basename "$target")"
if [ "$(size_of "$archive")" -gt "$most_bytes" ]; then
  split -b 60M -d "$archive" "$archive.part-"
  printf '   over 64 MiB: carry the parts one by one and join them there: cat %s.part-* | tar xJ\n' "$(basename "$archive")"
fi
