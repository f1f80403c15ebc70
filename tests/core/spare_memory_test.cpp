// Spare memory is given back, and nothing that was written is lost with it.
#include "magister/core/spare_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace magister {
namespace spare_memory_test {

constexpr std::size_t kMega = std::size_t{1} << 20;
constexpr std::uintptr_t kPage = 4096;

// A field of /proc/self/status, in bytes.
std::uint64_t status(const std::string& name) {
  std::ifstream lines("/proc/self/status");
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(name + ":")) return 1024 * std::stoull(line.substr(name.size() + 1));
  }
  return 0;
}

struct Segment {
  const volatile std::byte* begin = nullptr;
  std::size_t size = 0;
};

// The largest segment of all libraries that may not be written.
Segment largest_segment() {
  Segment largest;
  ::dl_iterate_phdr(
      [](dl_phdr_info* object, std::size_t, void* result) {
        for (int i = 0; i < object->dlpi_phnum; ++i) {
          const auto& one = object->dlpi_phdr[i];
          auto& most = *static_cast<Segment*>(result);
          if (one.p_type != PT_LOAD || (one.p_flags & PF_W) != 0 || object->dlpi_name[0] != '/') continue;
          if (one.p_filesz > most.size)
            most = {reinterpret_cast<const std::byte*>(object->dlpi_addr + one.p_vaddr), one.p_filesz};
        }
        return 0;
      },
      &largest);
  return largest;
}

std::uint64_t touch(const Segment& segment) {
  std::uint64_t sum = 0;
  for (std::size_t at = 0; at < segment.size; at += kPage) sum += static_cast<std::uint64_t>(segment.begin[at]);
  return sum;
}

TEST(SpareMemory, PagesOfLibrariesLeaveAndComeBackAsTheyWere) {
  const Segment segment = largest_segment();
  ASSERT_GT(segment.size, 100 * kPage);
  const std::uint64_t sum = touch(segment), before = status("RssFile");
  release_spare_memory();
  EXPECT_LT(status("RssFile") + segment.size / 2, before);
  EXPECT_EQ(touch(segment), sum);
}

// As a debugger writes: into a page that the program itself may not write.
TEST(SpareMemory, AWrittenPageOfALibraryStays) {
  const Segment segment = largest_segment();
  const auto middle = reinterpret_cast<std::uintptr_t>(segment.begin + segment.size / 2) / kPage * kPage;
  auto* const byte = reinterpret_cast<volatile std::byte*>(middle);
  void* const page = reinterpret_cast<void*>(middle);
  const std::byte original = *byte;
  constexpr int kAll = PROT_READ | PROT_WRITE | PROT_EXEC, kNoWrite = PROT_READ | PROT_EXEC;
  if (::mprotect(page, kPage, kAll) != 0) GTEST_SKIP() << "this system lets nothing write a library's page";
  *byte = original ^ std::byte{255};
  ::mprotect(page, kPage, kNoWrite);
  release_spare_memory();
  const std::byte after = *byte;
  ::mprotect(page, kPage, kAll);
  *byte = original;
  ::mprotect(page, kPage, kNoWrite);
  EXPECT_EQ(after, original ^ std::byte{255});
}

// Data of the program, which is in its file; nothing but these tests uses it.
alignas(kPage) unsigned char data[2 * kMega] = {1};

std::uint64_t touch_data() { return touch({reinterpret_cast<const volatile std::byte*>(data), sizeof data}); }

TEST(SpareMemory, DataThatNothingHasWrittenLeavesAndComesBack) {
  const std::uint64_t sum = touch_data(), before = status("RssFile");
  release_unwritten_data();
  EXPECT_LT(status("RssFile") + sizeof data / 2, before);
  EXPECT_EQ(touch_data(), sum);
}

TEST(SpareMemory, WrittenDataStays) {
  volatile unsigned char* const written = data + sizeof data / 2;
  for (std::size_t page : {std::size_t{0}, std::size_t{3}, std::size_t{4}}) written[page * kPage + 7] = 77;
  const std::uint64_t sum = touch_data();
  release_unwritten_data();
  for (std::size_t page : {std::size_t{0}, std::size_t{3}, std::size_t{4}}) {
    EXPECT_EQ(written[page * kPage + 7], 77);
    written[page * kPage + 7] = 0;
  }
  EXPECT_EQ(touch_data(), sum);
}

// It could write a page between the look at it and its end.
TEST(SpareMemory, NoDataLeavesWhileAnotherThreadRuns) {
  std::promise<void> end;
  std::thread other([&] { end.get_future().wait(); });
  touch_data();
  const std::uint64_t before = status("RssFile");
  release_unwritten_data();
  EXPECT_GE(status("RssFile"), before);
  end.set_value();
  other.join();
}

TEST(SpareMemory, PagesOfAFileThatWasReadLeave) {
  const std::string path = testing::TempDir() + "spare_memory_" + std::to_string(::getpid());
  std::ofstream(path) << std::string(8 * kMega, 'x');
  const int file = ::open(path.c_str(), O_RDONLY);
  ASSERT_GE(file, 0);
  void* const mapped = ::mmap(nullptr, 8 * kMega, PROT_READ, MAP_PRIVATE, file, 0);
  ::close(file);
  ASSERT_NE(mapped, MAP_FAILED);
  const Segment all{static_cast<const std::byte*>(mapped), 8 * kMega};
  const std::uint64_t sum = touch(all), before = status("RssFile");
  release_pages_of({path + ".other"});
  EXPECT_GT(status("RssFile") + kMega, before) << "another file's";
  release_pages_of({path});
  EXPECT_LT(status("RssFile") + 4 * kMega, before);  // 6.8, for libraries are touched meanwhile
  EXPECT_EQ(touch(all), sum);
  ::munmap(mapped, 8 * kMega);
  ::unlink(path.c_str());
}

TEST(SpareMemory, WhatWasFreedInTheAllocatorLeaves) {
  std::vector<std::unique_ptr<char[]>> blocks;
  constexpr std::size_t kBlock = 32768, kBlocks = 64 * kMega / kBlock;
  for (std::size_t i = 0; i < kBlocks; ++i) {
    blocks.push_back(std::make_unique<char[]>(kBlock));
    for (std::size_t at = 0; at < kBlock; at += kPage) blocks.back()[at] = 1;
  }
  const std::uint64_t before = status("RssAnon");
  blocks.erase(blocks.begin(), blocks.end() - 1);  // the last one keeps the allocator from giving the others back
  release_spare_memory();
  EXPECT_LT(status("RssAnon") + 48 * kMega, before);
}

}  // namespace spare_memory_test
}  // namespace magister
