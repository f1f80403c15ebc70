// Shared by all fuzz targets: the endings that a reader of foreign bytes may have, and a file that holds the bytes.
// A target is one file with LLVMFuzzerTestOneInput; libFuzzer calls it in scripts/fuzz.sh, replay.cpp in the tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "magister/core/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace magister::fuzz {

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Runs `call`, which returns or throws Error with one of these codes and a message in the program's form: lines that a
// terminal can show, each "<problem> (<why it matters>); <what to do>". Any other ending aborts the program with its
// reason. True if it returned.
bool read_or_refuse(std::initializer_list<ExitCode> codes, const std::function<void()>& call);

// Ends the program unless `holds`: for what must be true of every input that was read.
void require(bool holds, const char* what);

// A file of this name in a folder of this process, in memory where the machine has /dev/shm; removed at the end.
class InputFile {
 public:
  explicit InputFile(const std::string& name);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  void write(const std::uint8_t* data, std::size_t size) const;

 private:
  std::string folder_, path_;
};

}  // namespace magister::fuzz
