// Standard output is for the result of the command. SIGPIPE is ignored, so `magister info X | head` gives EPIPE here,
// which is silent as in any filter. Every other failed write is an error, since the result would be lost.
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "app/commands.h"

namespace magister {

namespace {

void check_write(bool written) {
  if (written || errno == EPIPE) return;
  fail(ExitCode::kInputOutput, "standard output: {} (the result is incomplete); make room or write elsewhere",
       std::strerror(errno));
}

}  // namespace

void say(std::string_view text) { check_write(std::fwrite(text.data(), 1, text.size(), stdout) == text.size()); }

void flush_standard_output() { check_write(std::fflush(stdout) == 0); }

}  // namespace magister
