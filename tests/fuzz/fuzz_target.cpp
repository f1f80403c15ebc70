// See fuzz_target.h. An ending that is not allowed aborts, which libFuzzer and replay.cpp both report with the input.
#include "fuzz/fuzz_target.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>

namespace magister::fuzz {
namespace {

constexpr std::size_t kMaxMessageBytes = 64 << 10;

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "fuzz target: %s\n", why.c_str());
  std::abort();
}

void check_message(const std::string& message) {
  if (message.size() > kMaxMessageBytes) give_up("a message of " + std::to_string(message.size()) + " bytes");
  for (std::size_t begin = 0; begin < message.size();) {
    const std::size_t end = std::min(message.find('\n', begin), message.size());
    const std::string line = message.substr(begin, end - begin);
    if (printable(line, kMaxMessageBytes * 4) != line) give_up("a message that no terminal should see: " + line);
    if (line.find('(') == std::string::npos || line.find("; ") == std::string::npos)
      give_up("a message without a reason or without what to do: " + line);
    begin = end + 1;
  }
}

}  // namespace

bool read_or_refuse(std::initializer_list<ExitCode> codes, const std::function<void()>& call) {
  try {
    call();
    return true;
  } catch (const Error& error) {
    if (std::find(codes.begin(), codes.end(), error.code()) == codes.end())
      give_up(fmt::format("exit code {}: {}", static_cast<int>(error.code()), error.what()));
    check_message(error.what());
  } catch (const std::exception& error) {
    give_up(std::string("an exception that is not the program's own: ") + error.what());
  }
  return false;
}

void require(bool holds, const char* what) {
  if (!holds) give_up(what);
}

InputFile::InputFile(const std::string& name) {
  std::error_code error;
  const bool in_memory = std::filesystem::is_directory("/dev/shm", error);
  folder_ = ((in_memory ? "/dev/shm" : std::filesystem::temp_directory_path()) / std::filesystem::path("fuzz-XXXXXX"))
                .string();
  if (::mkdtemp(folder_.data()) == nullptr) give_up("no folder for the input");
  path_ = folder_ + "/" + name;
}

InputFile::~InputFile() {
  std::error_code error;
  std::filesystem::remove_all(folder_, error);
}

void InputFile::write(const std::uint8_t* data, std::size_t size) const {
  std::ofstream file(path_, std::ios::binary);
  file.write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  if (!file.flush()) give_up("the input cannot be written to " + path_);
}

}  // namespace magister::fuzz
