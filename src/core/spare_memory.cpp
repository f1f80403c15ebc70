// Reading the operators of libtorch into its tables touches 60 MiB of its file before main, of which a model needs a
// third. MADV_DONTNEED drops a page from the process, and a page that was written would come back without what was
// written. So only segments count that the loader maps without the right to write, in which /proc/self/pagemap shows no
// page of the process's own: a debugger's breakpoints are such pages. Source: proc(5), Linux's admin-guide/mm/pagemap.
#include "magister/core/spare_memory.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>
#include <span>

#include "magister/core/file_descriptor.h"

namespace magister {
namespace {

constexpr std::uint64_t kPresent = std::uint64_t{1} << 63, kSwapped = std::uint64_t{1} << 62,
                        kOfFile = std::uint64_t{1} << 61;

// True if no page of [begin, end) was written. False if that is not known.
bool is_as_in_file(const FileDescriptor& pagemap, std::uintptr_t begin, std::uintptr_t end, std::uintptr_t page) {
  std::array<std::uint64_t, 4096> states{};
  for (std::uintptr_t at = begin / page; at < end / page;) {
    const std::size_t wanted = std::min<std::size_t>(states.size(), end / page - at);
    const BytesRead read =
        read_block(pagemap, at * sizeof states[0], std::as_writable_bytes(std::span(states).first(wanted)));
    if (read.count != wanted * sizeof states[0]) return false;
    for (const std::uint64_t state : std::span(states).first(wanted)) {
      if ((state & kSwapped) != 0 || ((state & kPresent) != 0 && (state & kOfFile) == 0)) return false;
    }
    at += wanted;
  }
  return true;
}

void drop_pages(std::uintptr_t begin, std::uintptr_t end) {
  ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);  // only memory depends on its success
}

// Drops the pages of [begin, end) that are still as in their file. Nothing may write them meanwhile.
void drop_unwritten(const FileDescriptor& pagemap, std::uintptr_t begin, std::uintptr_t end, std::uintptr_t page) {
  std::array<std::uint64_t, 4096> states{};
  for (std::uintptr_t at = begin / page; at < end / page;) {
    const auto block = std::span(states).first(std::min<std::size_t>(states.size(), end / page - at));
    const BytesRead read = read_block(pagemap, at * sizeof states[0], std::as_writable_bytes(block));
    if (read.count != block.size_bytes()) return;
    const auto is_unwritten = [](std::uint64_t state) { return (state & kPresent) != 0 && (state & kOfFile) != 0; };
    for (auto first = block.begin(); first != block.end();) {
      first = std::find_if(first, block.end(), is_unwritten);
      const auto last = std::find_if_not(first, block.end(), is_unwritten);
      if (first != last)
        drop_pages((at + static_cast<std::uintptr_t>(first - block.begin())) * page,
                   (at + static_cast<std::uintptr_t>(last - block.begin())) * page);
      first = last;
    }
    at += block.size();
  }
}

FileDescriptor open_pagemap() { return FileDescriptor(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC)); }

// The kernel's own object, which has no file, has a name without a path. The program's name is empty.
bool has_file(const dl_phdr_info& object) { return object.dlpi_name[0] == '\0' || object.dlpi_name[0] == '/'; }

// Calls action(begin, end, bytes of a page) for each segment of one program or library that may be written, or for each
// of the others: for its whole pages that are in the file.
template <typename Action>
void for_segments(const dl_phdr_info& object, bool are_writable, const Action& action) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  if (!has_file(object)) return;
  for (const ElfW(Phdr) & segment : std::span(object.dlpi_phdr, object.dlpi_phnum)) {
    if (segment.p_type != PT_LOAD || ((segment.p_flags & PF_W) != 0) != are_writable) continue;
    const std::uintptr_t address = object.dlpi_addr + segment.p_vaddr;
    const std::uintptr_t begin = address / page * page, end = (address + segment.p_filesz) / page * page;
    if (begin < end) action(begin, end, page);
  }
}

// Both are called under the loader's lock.
int release_segments(dl_phdr_info* object, std::size_t /*size*/, void* pagemap) {
  for_segments(*object, false, [pagemap](std::uintptr_t begin, std::uintptr_t end, std::uintptr_t page) {
    if (is_as_in_file(*static_cast<const FileDescriptor*>(pagemap), begin, end, page)) drop_pages(begin, end);
  });
  return 0;
}

int release_data(dl_phdr_info* object, std::size_t /*size*/, void* pagemap) {
  for_segments(*object, true, [pagemap](std::uintptr_t begin, std::uintptr_t end, std::uintptr_t page) {
    drop_unwritten(*static_cast<const FileDescriptor*>(pagemap), begin, end, page);
  });
  return 0;
}

bool is_only_thread() {
  std::error_code unknown;
  std::filesystem::directory_iterator threads("/proc/self/task", unknown);
  if (unknown || threads == std::filesystem::directory_iterator()) return false;
  threads.increment(unknown);
  return !unknown && threads == std::filesystem::directory_iterator();
}

}  // namespace

void release_unwritten_data() noexcept {
  FileDescriptor pagemap = open_pagemap();
  if (!pagemap.is_open() || !is_only_thread()) return;
  // A handler that writes between the look at a page and its end would have written in vain.
  sigset_t all, before;
  ::sigfillset(&all);
  if (::pthread_sigmask(SIG_SETMASK, &all, &before) != 0) return;
  ::dl_iterate_phdr(release_data, &pagemap);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void release_spare_memory() noexcept {
  // oneMKL's mkl_thread_free_buffers(), by the only name that libtorch shows.
  if (void* const of_mkl = ::dlsym(RTLD_DEFAULT, "mkl_serv_thread_free_buffers"); of_mkl != nullptr)
    reinterpret_cast<void (*)()>(of_mkl)();
  ::malloc_trim(0);
  FileDescriptor pagemap = open_pagemap();
  if (pagemap.is_open()) ::dl_iterate_phdr(release_segments, &pagemap);
}

void release_pages_of(const std::vector<std::string>& paths) {
  std::set<std::string> files;
  for (const std::string& path : paths) {
    std::error_code unknown;
    files.insert(std::filesystem::canonical(path, unknown).string());
  }
  const FileDescriptor pagemap = open_pagemap();
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  std::ifstream maps("/proc/self/maps");
  for (std::string line; pagemap.is_open() && std::getline(maps, line);) {  // "begin-end r--p offset device inode path"
    const std::size_t dash = line.find('-'), space = line.find(' '), path = line.find('/');
    if (path == std::string::npos || line.compare(space + 1, 3, "r--") != 0 || !files.contains(line.substr(path)))
      continue;
    const std::uintptr_t begin = std::stoull(line, nullptr, 16), end = std::stoull(line.substr(dash + 1), nullptr, 16);
    if (is_as_in_file(pagemap, begin, end, page)) drop_pages(begin, end);
  }
}

}  // namespace magister
