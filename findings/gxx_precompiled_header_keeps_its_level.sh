#!/usr/bin/env bash
# Believed: with a precompiled header g++ optimises as the command line of the file says (and -Winvalid-pch would tell what does not fit).
# Seen with g++ 12.2.0 (Debian 12): so it is, until the file includes <immintrin.h> and the header did not. From there on functions are compiled at
# the level that the header was made with, without a warning: a file of -O3 with a header of -O2 is one of -O2. The intrinsics' headers change the
# target for each of their parts and take it back, and what is taken back to is what stands in the precompiled header. A library's header that
# brings the intrinsics along is enough.
# Output seen:
#   g++ (Debian 12.2.0-14+deb12u1) 12.2.0
#   bytes of one loop at -O3:
#   without a precompiled header                     360
#   with one of -O2                                  360
#   with one of -O2, and <immintrin.h> in the file   57
# Ends with 1 when that changes. Needs g++ of the machine (x86-64) and binutils' nm.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
g++ --version | head -n 1

printf '#include <vector>\n' >header.h
loop='void scale(float* y, const float* x, int n) { for (int i = 0; i < n; ++i) y[i] = x[i] * 3 + 1; }'
printf '#include "header.h"\n%s\n' "$loop" >plain.cpp
printf '#include "header.h"\n#include <immintrin.h>\n%s\n' "$loop" >intrinsics.cpp

bytes_of() {  # bytes_of FILE LEVEL: of the function in its object
  g++ -std=c++20 -march=x86-64-v3 -Wall -Winvalid-pch "$2" -c "$1" -o object.o
  echo $((16#$(nm -S object.o | awk '$4 ~ /scale/ { print $2 }')))
}

without=$(bytes_of intrinsics.cpp -O3)
lower=$(bytes_of intrinsics.cpp -O2)
g++ -std=c++20 -march=x86-64-v3 -O2 -x c++-header header.h -o header.h.gch
plain=$(bytes_of plain.cpp -O3)
intrinsics=$(bytes_of intrinsics.cpp -O3)

printf 'bytes of one loop at -O3:\n%-48s %s\n%-48s %s\n%-48s %s\n' "without a precompiled header" "$without" \
  "with one of -O2" "$plain" "with one of -O2, and <immintrin.h> in the file" "$intrinsics"
[ "$plain" = "$without" ] && [ "$intrinsics" = "$lower" ] && [ "$lower" != "$without" ] || {
  echo "changed: the level of a precompiled header no longer stands in for the file's" >&2
  exit 1
}
