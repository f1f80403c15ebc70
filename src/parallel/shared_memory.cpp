// The first rank creates the file; the others open it through /proc/<pid>/fd of that rank. See shared_memory.h.
#include "magister/parallel/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <utility>

#include "magister/core/error.h"
#include "magister/core/file_descriptor.h"
#include "parallel/cores.h"

namespace magister {
namespace {

constexpr const char* kNodes = "/sys/devices/system/node";

// Path and identity of the file: a process with this number may be another program's, or run on another host.
struct Place {
  pid_t process = 0;
  int descriptor = -1;  // -1: the file could not be created
  dev_t device = 0;
  ino_t inode = 0;
};

FileDescriptor made_file(std::size_t num_bytes) {
  FileDescriptor file(::memfd_create("magister", MFD_CLOEXEC));
  if (file.is_open() && ::ftruncate(file.number(), static_cast<off_t>(num_bytes)) != 0) file.reset();
  return file;
}

Place place_of(int file) {
  struct stat status{};
  if (file < 0 || ::fstat(file, &status) != 0) return {};
  return {::getpid(), file, status.st_dev, status.st_ino};
}

FileDescriptor opened_file(const Place& place, std::size_t num_bytes) {
  if (place.descriptor < 0) return {};
  const std::string path = fmt::format("/proc/{}/fd/{}", place.process, place.descriptor);
  struct stat status{};
  const auto is_it = [&] {
    return status.st_dev == place.device && status.st_ino == place.inode &&
           status.st_size == static_cast<off_t>(num_bytes);
  };
  // Checked before opening, too: another file at this path may be a device or a pipe, which would block.
  if (::stat(path.c_str(), &status) != 0 || !is_it()) return {};
  FileDescriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (file.is_open() && (::fstat(file.number(), &status) != 0 || !is_it())) file.reset();
  return file;
}

// Begins at a border of huge pages, so that ranks can have the file's huge pages as such.
std::byte* mapped(int file, std::size_t num_bytes) {
  constexpr std::size_t kHugePage = std::size_t{2} << 20, kPage = 4096;
  if (file < 0) return nullptr;
  const std::size_t size = (num_bytes + kPage - 1) / kPage * kPage, all = size + kHugePage;
  void* const reserved = ::mmap(nullptr, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<std::byte*>(reserved);
  const std::size_t before = (kHugePage - reinterpret_cast<std::uintptr_t>(begin) % kHugePage) % kHugePage;
  void* const data = ::mmap(begin + before, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
  if (data == MAP_FAILED) {
    ::munmap(reserved, all);
    return nullptr;
  }
  if (before > 0) ::munmap(begin, before);
  ::munmap(begin + before + size, kHugePage - before);
  return static_cast<std::byte*>(data);
}

}  // namespace

std::shared_ptr<SharedMemory> SharedMemory::make(const Communicator& ranks, std::size_t num_bytes) {
  MAGISTER_ASSERT(num_bytes > 0);
  const bool is_first = ranks.rank() == 0;
  const FileDescriptor made = is_first ? made_file(num_bytes) : FileDescriptor();
  Place place = place_of(made.number());
  ranks.broadcast(&place, sizeof place, 0);
  const FileDescriptor opened = is_first ? FileDescriptor() : opened_file(place, num_bytes);
  std::byte* const data = mapped(is_first ? made.number() : opened.number(), num_bytes);
  std::shared_ptr<SharedMemory> own;
  if (data != nullptr) own.reset(new SharedMemory(data, num_bytes));
  // After this all ranks have opened the file, so the first rank may close it.
  return ranks.min(std::uint64_t{data != nullptr ? 1u : 0u}) == 1 ? own : nullptr;
}

SharedMemory::~SharedMemory() { ::munmap(data_, num_bytes_); }

Communicator ranks_near_memory(const Communicator& ranks) {
  const Communicator host = ranks.split_by_host();
  return host.split(1 + memory_node_of(allowed_cores(), kNodes), host.rank());
}

int num_memory_nodes() { return num_nodes_with_cores(kNodes); }

}  // namespace magister
