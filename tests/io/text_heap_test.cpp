// Texts of any length in a results file: written by HDF5, read back as plain bytes; what they cost; damage.
#include "io/results/text_heap.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "io/results/layout.h"
#include "magister/core/error.h"
#include "magister/io/results/text_heap_bytes.h"

namespace magister {
namespace text_heap_test {

namespace fs = std::filesystem;
using testing::HasSubstr;

ResultsSpec spec_of(std::uint64_t num_texts) {
  ResultsSpec spec;
  spec.columns = {{"/samples/offset", ColumnType::kU64, num_texts + 1, 0, "offsets", "", ColumnSpec::Extent::kFixed},
                  {"/generate/text", ColumnType::kText, num_texts, 0, "texts", "", ColumnSpec::Extent::kSamples}};
  spec.num_units = 1;
  return spec;
}

class TextHeapTest : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  // -> bytes that the texts added to the file.
  std::uint64_t write(const std::vector<std::string>& texts, std::size_t at_once = 1000) {
    fs::remove(path_);
    write_layout(path_, spec_of(texts.size()));
    const std::uint64_t before = fs::file_size(path_);
    TextHeapWriter writer(path_, "/generate/text");
    for (std::size_t first = 0; first < texts.size(); first += at_once) {
      writer.write(first, std::span(texts).subspan(first, std::min(at_once, texts.size() - first)));
    }
    writer.close();
    return fs::file_size(path_) - before;
  }
  std::vector<std::string> read() const {
    const ResultsColumns columns(PosixFile(path_, PosixFile::Access::kRead), read_layout(path_));
    const PlacedColumn& column = columns.at("/generate/text");
    std::vector<std::string> texts;
    TextHeap(columns, column).for_each({0, column.spec.num_rows}, [&](std::uint64_t row, std::string_view text) {
      EXPECT_EQ(row, texts.size());
      texts.emplace_back(text);
    });
    return texts;
  }
  std::string bytes() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void overwrite(std::uint64_t offset, const std::string& with) const {
    std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(offset));
    file << with;
  }
  void expect_refused(const std::string& words) const {
    try {
      read();
      ADD_FAILURE() << "no refusal: " << words;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kData) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(words));
    }
  }

  fs::path folder_ = fs::temp_directory_path() / fmt::format("magister_text_heap_{}", ::getpid());
  std::string path_ = (folder_ / "x.h5").string();
};

TEST_F(TextHeapTest, TextsOfEveryLengthComeBack) {
  std::vector<std::string> texts = {"", "a", "", "größer", "数据"};
  for (const std::size_t length : {7u, 8u, 9u, 4079u, 4080u, 4081u, 65503u, 65504u, 65505u, 70000u, 3'000'000u}) {
    texts.emplace_back(length, static_cast<char>('a' + length % 26));
    texts.emplace_back("between");
  }
  for (const std::size_t at_once : {1u, 3u, 1000u}) {
    write(texts, at_once);
    EXPECT_EQ(read(), texts);
  }
  const ResultsColumns columns(PosixFile(path_, PosixFile::Access::kRead), read_layout(path_));
  TextHeap heap(columns, columns.at("/generate/text"));
  for (std::size_t row = texts.size(); row-- > 0;) EXPECT_EQ(heap.text(row), texts[row]) << "any order";
}

TEST_F(TextHeapTest, EqualTextsGiveEqualBytes) {
  std::mt19937 random(2);
  std::vector<std::string> texts;
  for (int i = 0; i < 3000; ++i) texts.emplace_back(random() % 900, static_cast<char>('a' + i % 26));
  write(texts);
  const std::string once = bytes();
  write(texts);
  EXPECT_TRUE(bytes() == once);
}

TEST_F(TextHeapTest, OneLongTextCostsOnlyItself) {
  std::vector<std::string> texts(2000, "yes");
  const std::uint64_t without = write(texts);
  texts[1234] = std::string(5'000'000, 'x');
  const std::uint64_t with = write(texts);
  EXPECT_LT(with, without + 5'100'000) << "at a fixed length it would be 10 GB";
}

// The bytes planned for texts are never less than the bytes that they take, and not much more.
TEST_F(TextHeapTest, ThePlannedBytesHold) {
  std::mt19937 random(3);
  for (const std::size_t longest : {0u, 1u, 40u, 500u, 3000u, 5000u, 20000u, 33000u, 40000u, 70000u, 200000u}) {
    for (const bool equal : {true, false}) {
      std::vector<std::string> texts;
      TextHeapBytes planned;
      std::uint64_t length_sum = 0;
      for (std::size_t i = 0; i < 3000 && length_sum < 30'000'000; ++i) {
        texts.emplace_back(equal ? longest : random() % (longest + 1), 'x');
        planned.add(texts.back().size());
        length_sum += texts.back().size();
      }
      const std::uint64_t taken = write(texts);
      EXPECT_LE(taken, planned.bytes()) << "texts of " << longest;
      EXPECT_LE(planned.bytes(), 2 * (length_sum + 24 * texts.size()) + 200'000) << "texts of " << longest;
    }
  }
}

TEST_F(TextHeapTest, DamageIsTold) {
  const std::vector<std::string> texts = {"first", "second", "third"};
  write(texts);
  const std::string sound = bytes();
  const std::uint64_t heap = sound.find("GCOL");
  const auto columns = read_layout(path_);
  const std::uint64_t descriptor = std::find_if(columns.begin(), columns.end(), [](const auto& c) {
                                     return c.spec.path == "/generate/text";
                                   })->offset;
  const auto u64 = [](std::uint64_t value) { return std::string(reinterpret_cast<const char*>(&value), 8); };
  struct Damage {
    std::uint64_t offset;
    std::string with, words;
  };
  for (const Damage& damage :
       {Damage{descriptor + 4, u64(1ull << 60), "row 0 of /generate/text cannot be read: its heap is at byte"},
        {descriptor + 4, u64(0), "names no heap"},
        {descriptor + 16 + 4, u64(heap + 8), "row 1 of /generate/text cannot be read: there is no heap at byte"},
        {descriptor + 12, std::string("\x09\0\0\0", 4), "has no object 9"},
        {descriptor, std::string("\xff\xff\xff\x7f", 4), "of 2147483647 bytes"},
        {heap, "XCOL", "there is no heap at byte"},
        {heap + 8, u64(1ull << 40), "there is no heap at byte"},
        {heap + 16 + 8, u64(1ull << 40), "reaches beyond its end"}}) {
    std::ofstream(path_, std::ios::binary) << sound;
    overwrite(damage.offset, damage.with);
    expect_refused(damage.words);
  }
  std::ofstream(path_, std::ios::binary) << sound;
  EXPECT_EQ(read(), texts);
}

TEST_F(TextHeapTest, ANulIsNotCutAwaySilently) {
  write_layout(path_, spec_of(1));
  TextHeapWriter writer(path_, "/generate/text");
  EXPECT_THROW(writer.write(0, std::vector<std::string>{std::string("a\0b", 3)}), Error);
}

}  // namespace text_heap_test
}  // namespace magister
