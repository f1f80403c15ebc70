// Runs a fuzz target without libFuzzer: on every file of its corpus, then on the requested number of changed copies.
// The same number gives the same inputs on every machine, so a test can report a failing input. usage: fuzz_TARGET
// CORPUS [CHANGED COPIES]
// A fault leaves the input in fuzz-input.bin in the working folder: give that file's folder as CORPUS to see the fault
// again.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "fuzz/fuzz_target.h"

namespace {

constexpr unsigned kSecondsAnInput = 60;         // only what hangs takes so long
constexpr long kMaxGrowthKilobytes = 512 << 10;  // over the corpus itself
constexpr std::size_t kMaxInputBytes = 1 << 20;

std::string input;  // what the target sees now

extern "C" void keep_input(int signal) {
  const int file = ::open("fuzz-input.bin", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  const bool kept = file >= 0 && ::write(file, input.data(), input.size()) == static_cast<ssize_t>(input.size());
  const char* const text = kept ? "the input is in fuzz-input.bin\n" : "the input could not be kept\n";
  if (::write(2, text, std::char_traits<char>::length(text)) < 0) ::_exit(70);
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

long peak_kilobytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

void run_input() {
  ::alarm(kSecondsAnInput);
  // A block of exactly this size, so that a sanitizer detects a read after its end.
  const std::vector<std::uint8_t> bytes(input.begin(), input.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  ::alarm(0);
}

class Mutator {
 public:
  explicit Mutator(const std::vector<std::string>& seeds) : seeds_(seeds) {}

  std::string next() {
    std::string text = seeds_[draw(seeds_.size())];
    for (std::size_t edits = 1 + draw(5); edits > 0; --edits) edit(text);
    if (text.size() > kMaxInputBytes) text.resize(kMaxInputBytes);
    return text;
  }

 private:
  std::size_t draw(std::size_t below) {
    state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
    return below == 0 ? 0 : static_cast<std::size_t>(state_ >> 33) % below;
  }
  std::string piece(const std::string& from, std::size_t most) {
    return from.substr(draw(from.size() + 1), 1 + draw(most));
  }

  void edit(std::string& text) {
    static const std::string numbers[] = {std::string(8, '\0'),
                                          std::string(8, '\xFF'),
                                          std::string("\0\0\0\0\0\0\0\x80", 8),
                                          std::string(4, '\xFF'),
                                          std::string("\0\0\0\x80", 4),
                                          std::string("\1\0\0\0\0\0\0\0", 8),
                                          "-1",
                                          "18446744073709551616",
                                          "1e999",
                                          "null",
                                          "[",
                                          "{",
                                          "\"",
                                          "\xED\xA0\x80",
                                          std::string("\0\0\1\0\0\0\0\0", 8)};
    const std::size_t at = draw(text.size() + 1);
    const std::string& number = numbers[draw(std::size(numbers))];
    switch (draw(8)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ static_cast<char>(1u << draw(8)));
        return;
      case 1:
        if (at < text.size()) text[at] = static_cast<char>(draw(256));
        return;
      case 2:
        text.erase(at, 1 + draw(16));
        return;
      case 3:
        text.insert(at, piece(text, 64));
        return;
      case 4:
        text.insert(at, piece(seeds_[draw(seeds_.size())], 64));
        return;
      case 5:
        text.replace(at, std::min(number.size(), text.size() - at), number);
        return;
      case 6:
        text.insert(at, number);
        return;
      default:
        if (draw(4) == 0) text.resize(at);
        return;
    }
  }

  const std::vector<std::string>& seeds_;
  std::uint64_t state_ = 42;
};

std::vector<std::string> read_corpus(const char* folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> seeds;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return seeds;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s CORPUS [CHANGED COPIES]\n", argv[0]);
    return 64;
  }
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGABRT, SIGALRM}) ::signal(signal, keep_input);
  const std::vector<std::string> seeds = read_corpus(argv[1]);
  magister::fuzz::require(!seeds.empty(), "the corpus is empty");
  for (const std::string& seed : seeds) {
    input = seed;
    run_input();
  }
  const long before = peak_kilobytes();
  Mutator mutator(seeds);
  const long count = argc > 2 ? std::atol(argv[2]) : 0;
  for (long i = 0; i < count; ++i) {
    input = mutator.next();
    run_input();
    magister::fuzz::require(peak_kilobytes() - before < kMaxGrowthKilobytes, "512 MiB of memory for an input");
  }
  std::printf("%zu files and %ld changed copies; peak memory %ld MiB, %ld of it for the copies\n", seeds.size(), count,
              peak_kilobytes() >> 10, (peak_kilobytes() - before) >> 10);
  return 0;
}
