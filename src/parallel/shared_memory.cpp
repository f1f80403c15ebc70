// The first rank makes the file, the others open it where the kernel shows that rank's open files; see shared_memory.h.
#include "magister/parallel/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "magister/core/error.h"

namespace magister {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int number() const { return number_; }

 private:
  int number_;
};

// Where a file is found, and which one it is: a process of the same number may be another's, or run on another host.
struct Place {
  pid_t process = 0;
  int descriptor = -1;  // none: the file could not be made
  dev_t device = 0;
  ino_t inode = 0;
};

int made_file(std::size_t num_bytes) {
  const int file = ::memfd_create("magister", MFD_CLOEXEC);
  if (file < 0) return -1;
  if (::ftruncate(file, static_cast<off_t>(num_bytes)) == 0) return file;
  ::close(file);
  return -1;
}

Place place_of(int file) {
  struct stat status{};
  if (file < 0 || ::fstat(file, &status) != 0) return {};
  return {::getpid(), file, status.st_dev, status.st_ino};
}

int opened_file(const Place& place, std::size_t num_bytes) {
  if (place.descriptor < 0) return -1;
  const std::string path = fmt::format("/proc/{}/fd/{}", place.process, place.descriptor);
  struct stat status{};
  const auto is_it = [&] {
    return status.st_dev == place.device && status.st_ino == place.inode &&
           status.st_size == static_cast<off_t>(num_bytes);
  };
  // Looked at before it is opened, too: whatever else stands there may be a device or a pipe, which would wait.
  if (::stat(path.c_str(), &status) != 0 || !is_it()) return -1;
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return -1;
  if (::fstat(file, &status) == 0 && is_it()) return file;
  ::close(file);
  return -1;
}

std::byte* mapped(int file, std::size_t num_bytes) {
  if (file < 0) return nullptr;
  void* const data = ::mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return data == MAP_FAILED ? nullptr : static_cast<std::byte*>(data);
}

}  // namespace

std::shared_ptr<SharedMemory> SharedMemory::make(const Communicator& ranks, std::size_t num_bytes) {
  MAGISTER_ASSERT(num_bytes > 0);
  const bool is_first = ranks.rank() == 0;
  const Descriptor made(is_first ? made_file(num_bytes) : -1);
  Place place = place_of(made.number());
  ranks.broadcast(&place, sizeof place, 0);
  const Descriptor opened(is_first ? -1 : opened_file(place, num_bytes));
  std::byte* const data = mapped(is_first ? made.number() : opened.number(), num_bytes);
  std::shared_ptr<SharedMemory> own;
  if (data != nullptr) own.reset(new SharedMemory(data, num_bytes));
  // Now all that can have it open.
  return ranks.min(std::uint64_t{data != nullptr ? 1u : 0u}) == 1 ? own : nullptr;
}

SharedMemory::~SharedMemory() { ::munmap(data_, num_bytes_); }

}  // namespace magister
