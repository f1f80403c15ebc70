# Constrained output, compiled into .deps/xgrammar; sourced by scripts/setup.sh, never run. No package has its headers or a library to link.
xgrammar_version=0.2.8
xgrammar_sha256=8305646fd2b319d6c3003f51a1665e54cbbe9cba1fb636bc41d0b46434ccbb80
xgrammar_flags="-std=gnu++17 -O2 -fPIE -march=x86-64-v3 -DNDEBUG -DXGRAMMAR_LOG_CUSTOMIZE=1 -DXGRAMMAR_ENABLE_CPPTRACE=0 -DXGRAMMAR_ENABLE_INTERNAL_CHECK=0"
# Two compilations of about the same time, each of many files one after the other (names under cpp/): half the CPU time of 28 files one by one, most of
# which goes into the same templates of the same headers. What makes masks has, with the growth that is allowed here, as many instructions to
# execute as if its files were apart; without it 1 % more.
xgrammar_grammars=(json_schema_converter grammar_functor fsm_builder suffix_automata grammar_builder grammar_parser grammar_printer regex_converter grammar)
xgrammar_masks=(fsm grammar_matcher grammar_compiler compiled_grammar tokenizer_info earley_parser testing left_out support/recursion_guard support/logging)
xgrammar_masks_flags="--param inline-unit-growth=80"

# All names are relative to the source's folder, so that ccache knows the work of other clones.
compile_part() {  # compile_part NAME FLAGS SOURCE...
  local name=$1 flags="$xgrammar_flags $2" compiler=()
  shift 2
  read -ra compiler <<<"${CXX:-c++}"
  ! command -v ccache >/dev/null || compiler=(ccache "${compiler[@]}")
  printf '#include "cpp/%s.cc"\n' "$@" >"$name.cc"
  # shellcheck disable=SC2086 -- flags are words
  "${compiler[@]}" $flags -I. -Icpp -Iinclude -isystem 3rdparty/picojson -isystem 3rdparty/dlpack/include -c "$name.cc" -o "$name.o"
}

compile_parts() (  # compile_parts FOLDER
  local masks status=0
  cd "$1" || return 1
  compile_part masks "$xgrammar_masks_flags" "${xgrammar_masks[@]}" &
  masks=$!
  compile_part grammars "" "${xgrammar_grammars[@]}" || status=$?
  wait "$masks" || status=$?
  [ "$status" -ne 0 ] || ar crs libxgrammar.a grammars.o masks.o || status=$?
  return "$status"
)

# The stamp is written last: what was interrupted half-way has none and is made again.
place_xgrammar() {
  local target=.deps/xgrammar work=.deps/xgrammar.new archive=xgrammar-$xgrammar_version.tar.gz source wanted
  source=$work/xgrammar-$xgrammar_version
  wanted="$xgrammar_version $xgrammar_sha256 fixed-4 $xgrammar_flags $xgrammar_masks_flags"
  [ "$(cat "$target/stamp" 2>/dev/null)" != "$wanted" ] || return 0
  fetch_source xgrammar "$xgrammar_version" "$xgrammar_sha256" "$archive" "$work"
  tar -xzf "$work/$archive" -C "$work"
  .deps/venv/bin/python scripts/setup/fix_xgrammar.py "$source" ||
    die 70 "the source of xgrammar $xgrammar_version is not as expected (its strings and numbers could not be fixed); report it"
  logged .deps/log/xgrammar-build.log compile_parts "$source"
  rm -rf "$target"
  mkdir -p "$target/include"
  mv "$source/include/xgrammar" "$source/3rdparty/dlpack/include/dlpack" "$target/include"
  mv "$source/libxgrammar.a" "$source/LICENSE" "$target"
  rm -rf "$work"
  printf '%s\n' "$wanted" >"$target/stamp"
}
