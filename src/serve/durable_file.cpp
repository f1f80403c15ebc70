#include "serve/durable_file.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <atomic>

#include "magister/core/error.h"
#include "magister/core/file_descriptor.h"

namespace magister {

void write_durably(const std::string& path, const std::string& text) {
  static std::atomic<std::uint64_t> number = 0;
  const std::string fresh = fmt::format("{}.creating.{}", path, number++);
  const auto check = [&path](bool done) {
    MAGISTER_CHECK(done, ExitCode::kInputOutput, "{}: cannot be written ({}); look at its folder", printable(path),
                   strerror(errno));
  };
  const FileDescriptor file(open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640));
  check(file.is_open());
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t written = write(file.number(), text.data() + done, text.size() - done);
    check(written > 0 || errno == EINTR);
    done += static_cast<std::size_t>(std::max<ssize_t>(written, 0));
  }
  check(fsync(file.number()) == 0 && rename(fresh.c_str(), path.c_str()) == 0);
}

}  // namespace magister
