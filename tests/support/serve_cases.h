// A probe that is started once for many cases of a test. Each case is a process of its own, as if it had been started
// directly, but forked after the start of the libraries (a quarter of a second for libtorch).
// tests/support/probe_cases.py is the client.
#pragma once

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

namespace magister::test {

// Reads from standard input itself, below std::cin, which belongs to the case; false at its end.
inline bool read_whole(void* into, std::size_t bytes) {
  for (auto* at = static_cast<char*>(into); bytes > 0;) {
    const ssize_t got = read(STDIN_FILENO, at, bytes);
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

// Reads the number of texts, and for each its length and bytes: the files for standard input, output and errors, then
// the arguments. Empty at the end.
inline std::vector<std::string> next_case() {
  std::uint32_t count = 0, length = 0;
  if (!read_whole(&count, sizeof count)) return {};
  std::vector<std::string> texts(count);
  for (std::string& text : texts) {
    if (!read_whole(&length, sizeof length)) return {};
    text.resize(length);
    if (!read_whole(text.data(), length)) return {};
  }
  return texts;
}

[[noreturn]] inline void run_case(std::vector<std::string>& texts, char* name, int (*run)(int, char**)) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (int number = 0; number < 3; ++number) {
    const int file = open(texts[static_cast<std::size_t>(number)].c_str(), number == 0 ? O_RDONLY : O_WRONLY | O_TRUNC);
    if (file < 0 || dup2(file, number) < 0) _exit(127);
    close(file);
  }
  std::vector<char*> arguments{name};
  for (std::size_t i = 3; i < texts.size(); ++i) arguments.push_back(texts[i].data());
  arguments.push_back(nullptr);
  const int code = run(static_cast<int>(arguments.size()) - 1, arguments.data());
  std::cout.flush();
  std::fflush(nullptr);
  _exit(code);  // libtorch would free its table of operators one by one
}

// main() of a probe: `PROBE --cases` answers each case with its wait status, anything else is one case.
inline int serve_cases(int argc, char** argv, int (*run)(int, char**)) {
  if (argc != 2 || std::strcmp(argv[1], "--cases") != 0) return run(argc, argv);
  for (std::vector<std::string> texts; !(texts = next_case()).empty();) {
    const pid_t child = fork();
    if (child == 0) run_case(texts, argv[0], run);
    std::int32_t status = 0;
    if (child < 0 || waitpid(child, &status, 0) < 0 || write(STDOUT_FILENO, &status, sizeof status) != sizeof status)
      return 1;
  }
  return 0;
}

}  // namespace magister::test
