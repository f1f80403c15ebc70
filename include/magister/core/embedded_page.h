// A file that the build embeds in the program; scripts/cmake/EmbedPages.cmake writes the arrays.
#pragma once

#include <cstddef>

namespace magister {

struct EmbeddedPage {
  const char* name;            // its path in the repository; null: the end of an array
  const unsigned char* bytes;  // [num_bytes], UTF-8 without a 0 at the end
  std::size_t num_bytes;
};

}  // namespace magister
