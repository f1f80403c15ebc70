// Data sets over 1, 2 and 4 ranks: every record once and in order for all blocks, slices and limits; sha256 equal to
// that of the bytes; every kind of bad line by file, line and reason; paths that are no files. Rank 0 writes, all ranks
// read.
#include "magister/io/dataset/dataset.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <random>

#include "io/dataset/dataset_files.h"
#include "io/dataset/newlines.h"
#include "io/dataset/record_format.h"
#include "io/scratch_folder.h"
#include "magister/core/error.h"
#include "magister/core/sha256.h"

namespace magister {
namespace dataset_test {

using test::ScratchFolder;

class DatasetTest : public ::testing::Test {
 protected:
  void TearDown() override { world_.barrier(); }  // rank 0 removes the folder when all ranks have finished reading

  std::string write(const std::string& name, std::string_view bytes) {
    const std::string path = folder_.write(name, bytes);
    world_.barrier();
    return path;
  }
  Dataset open(const std::vector<std::string>& paths) {
    config_.paths = paths;
    return Dataset::open(world_, config_);
  }
  std::vector<std::string> texts(const Dataset& dataset, IndexRange range) {
    std::vector<std::string> found;
    dataset.for_each(range, [&](Record&& record) { found.push_back(record.text); });
    return found;
  }
  std::vector<std::string> texts(const Dataset& dataset) { return texts(dataset, dataset.records()); }

  // The error of open() and of reading everything; the code and message must be the same on every rank.
  void expect_refused(const std::string& name, const std::vector<std::string>& paths, ExitCode code,
                      const std::string& wanted) {
    SCOPED_TRACE(name);
    std::string message = "nothing";
    try {
      const Dataset dataset = open(paths);
      dataset.for_each(dataset.records(), [](Record&&) {});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      message = error.what();
    }
    EXPECT_NE(message.find(wanted), std::string::npos) << "\"" << wanted << "\" is not in: " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
    EXPECT_LT(message.size(), 1200u);
    for (const std::string& other : world_.all_gather(message)) EXPECT_EQ(other, message);
  }
  void expect_bad_line(const std::string& name, const std::string& line, const std::string& wanted) {
    const std::string path = write("bad.jsonl", "{\"text\":\"a\",\"id\":1,\"ids\":[1]}\n" + line + "\n");
    expect_refused(name, {path}, ExitCode::kData, wanted);
    expect_refused(name + ": its place", {path}, ExitCode::kData, "bad.jsonl:2: ");
    world_.barrier();
  }

  Communicator world_ = Communicator::world();
  ScratchFolder folder_{world_};
  DatasetConfig config_;
};

// Lines of many lengths, some over a block, with empty ones, CRLF and no end of line at the end.
std::vector<std::string> many_lines(std::size_t count) {
  std::mt19937 random(7);
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t length = i == count / 2 ? 9'000'000 : i % 1000 == 999 ? 300'000 : random() % 60;
    lines.push_back(length == 0 ? "" : fmt::format("{} ", i) + std::string(length, static_cast<char>('a' + i % 26)));
  }
  lines.back() = "last";
  return lines;
}

TEST_F(DatasetTest, EveryRecordOnceWhateverTheBlocks) {
  const auto lines = many_lines(20'000);
  std::string bytes;
  for (const std::string& line : lines) bytes += line + (line.size() % 3 == 1 ? "\r\n" : "\n");
  bytes.pop_back();
  ASSERT_GT(bytes.size(), 3 * kDataBlockBytes);
  const Dataset dataset = open({write("many.txt", bytes)});
  EXPECT_EQ(dataset.sha256(), sha256_hex(bytes));
  ASSERT_EQ(dataset.num_source_records(), lines.size());
  EXPECT_EQ(dataset.records(), (IndexRange{0, lines.size()}));
  const std::uint64_t begin =
      lines.size() * static_cast<std::uint64_t>(world_.rank()) / static_cast<std::uint64_t>(world_.size());
  const std::uint64_t end =
      lines.size() * static_cast<std::uint64_t>(world_.rank() + 1) / static_cast<std::uint64_t>(world_.size());
  std::uint64_t next = begin;
  dataset.for_each({begin, end}, [&](Record&& record) {
    ASSERT_EQ(record.source_index, next);
    ASSERT_EQ(record.key, std::to_string(next));
    ASSERT_TRUE(record.text == lines[next]) << next;
    ASSERT_TRUE(record.where.ends_with(fmt::format("many.txt:{}", next + 1)));
    ++next;
  });
  EXPECT_EQ(next, end);
  for (const std::uint64_t i : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{9'999}, std::uint64_t{10'000},
                                std::uint64_t{10'001}, std::uint64_t{19'999}}) {
    EXPECT_TRUE(texts(dataset, {i, i + 1}) == std::vector<std::string>{lines[i]}) << i;
    EXPECT_TRUE(texts(dataset, {i, i}).empty());
  }
}

// Line ends exactly at, before and after the border of a block.
TEST_F(DatasetTest, LinesAtTheBorderOfABlock) {
  for (const std::uint64_t length : {kDataBlockBytes - 2, kDataBlockBytes - 1, kDataBlockBytes, kDataBlockBytes + 1}) {
    for (const bool closed : {true, false}) {
      const std::vector<std::string> lines = {std::string(length, 'x'), "", "b", std::string(length, 'y')};
      std::string bytes;
      for (const std::string& line : lines) bytes += line + "\n";
      if (!closed) bytes.pop_back();
      const Dataset dataset = open({write("border.txt", bytes)});
      ASSERT_EQ(dataset.num_source_records(), 4u);
      EXPECT_TRUE(texts(dataset) == lines);
      for (std::uint64_t i = 0; i < 4; ++i) EXPECT_TRUE(texts(dataset, {i, i + 1}).at(0) == lines[i]);
      world_.barrier();
    }
  }
}

// Blank lines of JSONL are no records, at any place, but count in line numbers; every record is found from every place.
TEST_F(DatasetTest, BlankLinesOfJsonlAreNoRecords) {
  std::mt19937 random(11);
  std::string bytes;
  std::vector<std::pair<std::string, std::uint64_t>> wanted;  // text and line
  std::uint64_t line = 0;
  const auto put_blanks = [&](std::size_t count) {
    constexpr const char* kBlank[] = {"\n", "\r\n", " \t\n", "   \n"};
    for (std::size_t i = 0; i < count; ++i, ++line) bytes += kBlank[random() % 4];
  };
  for (int i = 0; i < 3000; ++i) {
    put_blanks(random() % 3);
    if (i == 1000)
      // A record after blocks of blanks, on the same line.
      bytes += std::string(2 * kDataBlockBytes + 5, ' ');
    if (i == 2000) put_blanks(3 * kDataBlockBytes);  // blocks of blank lines alone
    const std::string text = std::to_string(i) + std::string(i % 500 == 7 ? 2'000'000 : random() % 90, 'x');
    bytes += (i % 9 == 0 ? " " : "") + ("{\"text\":\"" + text + "\"}") + (i % 4 == 0 ? "\r\n" : "\n");
    wanted.emplace_back(text, ++line);
  }
  put_blanks(2);
  bytes += "  ";  // and no line end
  config_.max_line_bytes = 64 << 20;
  const Dataset dataset = open({write("blank.jsonl", bytes)});
  ASSERT_EQ(dataset.num_source_records(), wanted.size());
  const auto expect_range = [&](const Dataset& of, IndexRange range) {
    std::uint64_t next = range.begin;
    of.for_each(range, [&](Record&& record) {
      ASSERT_EQ(record.source_index, next);
      ASSERT_TRUE(record.text == wanted[next].first) << next;
      ASSERT_TRUE(record.where.ends_with(fmt::format("blank.jsonl:{}", wanted[next].second))) << record.where;
      ++next;
    });
    ASSERT_EQ(next, range.end);
  };
  expect_range(dataset, {0, wanted.size()});
  for (std::uint64_t i = static_cast<std::uint64_t>(world_.rank()); i < wanted.size(); i += 97)
    expect_range(dataset, {i, i + 1});
  config_.slice_index = 1;
  config_.slice_count = 3;
  config_.limit = 2500;
  const Dataset slice = open({folder_ / "blank.jsonl"});
  EXPECT_EQ(slice.records(), (IndexRange{833, 1666}));
  expect_range(slice, slice.records());
}

TEST_F(DatasetTest, BlankLinesAtTheBorderOfABlock) {
  const std::string record = "{\"text\":\"a\"}";
  for (const std::string blank : {"", "   "}) {
    for (std::uint64_t before = kDataBlockBytes - record.size() - 6; before <= kDataBlockBytes + 1; ++before) {
      const std::string bytes = record + "\n" + std::string(before - record.size() - 1, ' ') + "\n" + blank + "\n" +
                                record + "\n" + blank + (before % 2 == 0 ? "\n" : "");
      const Dataset dataset = open({write("edge.jsonl", bytes)});
      ASSERT_EQ(dataset.num_source_records(), 2u) << before;
      dataset.for_each({1, 2}, [&](Record&& one) { EXPECT_TRUE(one.where.ends_with("edge.jsonl:4")) << one.where; });
      world_.barrier();
    }
  }
}

TEST_F(DatasetTest, FilesAreJoinedInOrder) {
  write("b1.txt", "1\n2\n");
  write("b0.txt", "0");
  write("empty.txt", "");
  write("c.jsonl", "{\"text\":\"3\"}\n{\"text\":\"4\"}");
  const Dataset dataset = open({folder_ / "b?.txt", folder_ / "empty.txt", folder_ / "c.jsonl"});
  EXPECT_EQ(texts(dataset), (std::vector<std::string>{"0", "1", "2", "3", "4"}));
  EXPECT_EQ(dataset.sha256(),
            sha256_hex(sha256_hex("0") + "  b0.txt\n" + sha256_hex("1\n2\n") + "  b1.txt\n" + sha256_hex("") +
                       "  empty.txt\n" + sha256_hex("{\"text\":\"3\"}\n{\"text\":\"4\"}") + "  c.jsonl\n"));
  std::vector<std::string> places;
  dataset.for_each({2, 4}, [&](Record&& record) { places.push_back(record.where); });
  EXPECT_EQ(places, (std::vector<std::string>{folder_ / "b1.txt:2", folder_ / "c.jsonl:1"}));
  write("[x].txt", "brackets");
  EXPECT_EQ(texts(open({folder_ / "[x].txt"})), std::vector<std::string>{"brackets"});
}

TEST_F(DatasetTest, SlicesCoverEverythingOnce) {
  std::string bytes;
  for (int i = 0; i < 103; ++i) bytes += std::to_string(i) + "\n";
  const std::string path = write("numbers.txt", bytes);
  for (const std::uint64_t limit : {103u, 7u, 0u, 1000u}) {
    for (const std::uint64_t count : {1u, 3u, 11u}) {
      std::vector<std::string> all;
      std::uint64_t least = ~0ull, most = 0;
      for (std::uint64_t slice = 0; slice < count; ++slice) {
        config_.limit = limit;
        config_.slice_index = slice;
        config_.slice_count = count;
        const Dataset dataset = open({path});
        EXPECT_EQ(dataset.num_source_records(), std::min<std::uint64_t>(limit, 103));
        least = std::min(least, dataset.records().size());
        most = std::max(most, dataset.records().size());
        for (const std::string& text : texts(dataset)) all.push_back(text);
      }
      ASSERT_EQ(all.size(), std::min<std::uint64_t>(limit, 103));
      for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], std::to_string(i));
      EXPECT_LE(most - least, 1u);
    }
  }
  config_.slice_index = config_.slice_count = 4;
  expect_refused("slice 4/4", {path}, ExitCode::kConfig, "slice 4/4");
}

TEST_F(DatasetTest, NoRecordsAtAll) {
  for (const char* name : {"none.txt", "none.jsonl"}) {
    const Dataset dataset = open({write(name, "")});
    EXPECT_EQ(dataset.num_source_records(), 0u);
    EXPECT_EQ(dataset.sha256(), sha256_hex(""));
    EXPECT_TRUE(texts(dataset).empty());
  }
  for (const char* const blank : {"\n", " ", "\r\n \n", "\xEF\xBB\xBF", "\xEF\xBB\xBF\n"})
    EXPECT_TRUE(texts(open({write("blank.jsonl", blank)})).empty());
  EXPECT_EQ(texts(open({write("one.txt", "\n")})), std::vector<std::string>{""});
}

TEST_F(DatasetTest, FieldsKeysAndTokens) {
  config_.text_field = "body";
  config_.key_field = "id";
  const std::string path =
      write("f.jsonl",
            "\xEF\xBB\xBF{\"id\":\"a\",\"body\":\"x\\ny\",\"more\":{\"body\":[{\"id\":1}]}}\r\n"
            "{\"body\":\"\",\"id\":-7}\n {\"id\":18446744073709551615,\"body\":\"\\ud83d\\ude00\"}\t\n"
            "{\"x\":[1e400,-1e999],\"id\":-123456789012345678901234567890,\"body\":\"a\\u0000b\",\"y\":1e-400}\n"
            "{\"id\":1" +
                std::string(400, '0') + ",\"n\":\"1e400\",\"body\":\"\\\"1e400\"}");
  std::vector<std::string> keys, bodies;
  open({path}).for_each({0, 5}, [&](Record&& record) {
    keys.push_back(record.key);
    bodies.push_back(record.text);
  });
  EXPECT_EQ(keys, (std::vector<std::string>{"a", "-7", "18446744073709551615", "-123456789012345678901234567890",
                                            "1" + std::string(400, '0')}));
  EXPECT_EQ(bodies, (std::vector<std::string>{"x\ny", "", "\U0001F600", std::string("a\0b", 3), "\"1e400"}));
  config_ = {};
  config_.tokens_field = "ids";
  std::vector<std::vector<TokenId>> tokens;
  open({write("t.jsonl", "{\"ids\":[0,2147483647,5]}\n{\"ids\":[]}\n")}).for_each({0, 2}, [&](Record&& record) {
    tokens.push_back(record.tokens);
  });
  EXPECT_EQ(tokens, (std::vector<std::vector<TokenId>>{{0, 2147483647, 5}, {}}));
}

TEST_F(DatasetTest, BadLinesAreNamed) {
  config_.key_field = "id";
  expect_bad_line("no JSON", "hello", "not valid JSON");
  expect_bad_line("cut", "{\"id\":1,\"text\":\"a", "not valid JSON");
  expect_bad_line("two values", "{\"id\":1,\"text\":\"a\"} {}", "not valid JSON");
  expect_bad_line("comment", "{\"id\":1,\"text\":\"a\"} // x", "not valid JSON");
  expect_bad_line("NaN", "{\"id\":1,\"text\":\"a\",\"x\":NaN}", "not valid JSON");
  expect_bad_line("control character", "{\"id\":1,\"text\":\"\x01\"}", "not valid JSON");
  expect_bad_line("a list", "[\"text\"]", "the line is a list");
  expect_bad_line("a number", "5", "the line is a number");
  expect_bad_line("a text", "\"text\"", "the line is a text");
  expect_bad_line("null", "null", "the line is null");
  expect_bad_line("no text", "{\"id\":1}", "no field \"text\" (the experiment asks for it; the record has id)");
  expect_bad_line("near text", "{\"id\":1,\"txet\":\"a\"}", "did you mean \"txet\"?");
  expect_bad_line("text deeper", "{\"id\":1,\"x\":{\"text\":\"a\"}}", "no field \"text\"");
  expect_bad_line("text is a number", "{\"id\":1,\"text\":5}", "\"text\" is a number");
  expect_bad_line("text is null", "{\"id\":1,\"text\":null}", "\"text\" is null");
  expect_bad_line("text is a list", "{\"id\":1,\"text\":[\"a\"]}", "\"text\" is a list");
  expect_bad_line("text twice", "{\"id\":1,\"text\":\"a\",\"text\":\"b\"}", "\"text\" is there twice");
  expect_bad_line("twice, deep", "{\"id\":1,\"text\":\"a\",\"x\":[{\"y\":1,\"y\":2}]}", "\"y\" is there twice");
  expect_bad_line("no key", "{\"text\":\"a\"}", "no field \"id\"");
  expect_bad_line("key is a fraction", "{\"id\":1.5,\"text\":\"a\"}", "the key \"id\" is a number with a fraction");
  expect_bad_line("key is infinite", "{\"text\":\"a\",\"id\":1e400}", "the key \"id\" is a number with a fraction");
  expect_bad_line("key is an object", "{\"id\":{},\"text\":\"a\"}", "the key \"id\" is an object");
  expect_bad_line("key too long", "{\"id\":\"" + std::string(5000, 'k') + "\",\"text\":\"a\"}", "has 5000 bytes");
  expect_bad_line("key with NUL", "{\"id\":\"a\\u0000\",\"text\":\"a\"}", "NUL");
  expect_bad_line("not UTF-8", "{\"id\":1,\"text\":\"\xFF\"}", "not valid UTF-8 at byte 17");
  expect_bad_line("overlong", "{\"id\":1,\"text\":\"\xC0\xAF\"}", "not valid UTF-8");
  expect_bad_line("surrogate in UTF-8", "{\"id\":1,\"text\":\"\xED\xA0\x80\"}", "not valid UTF-8");
  expect_bad_line("high surrogate alone", R"({"id":1,"text":"\ud800"})", "surrogate");
  expect_bad_line("low surrogate alone", R"({"id":1,"text":"\udc00x"})", "surrogate");
  expect_bad_line("NUL byte", std::string("{\"id\":1,\"text\":\"a\"}\0 x", 23), "NUL byte");
  expect_bad_line("byte order mark inside", "\xEF\xBB\xBF{\"id\":1,\"text\":\"a\"}", "byte order mark");
  expect_bad_line("deep", "{\"x\":" + std::string(1'000'000, '['), "nested deeper than 64");
  expect_bad_line("65 levels", "{\"x\":" + std::string(64, '[') + std::string(64, ']') + "}", "nested deeper than 64");
  expect_bad_line("escape on the terminal", "{\"\\u001b[2J\":1,\"\\u001b[2J\":1}", "\\x1B[2J");
  config_.max_line_bytes = 50;
  expect_bad_line("long line", "{\"id\":1,\"text\":\"" + std::string(100, 'x') + "\"}", "longer than 50 bytes");
  expect_bad_line("long line without end", "{\"id\":1,\"text\":\"" + std::string(3'000'000, 'x'),
                  "longer than 50 bytes");
}

TEST_F(DatasetTest, BadTokensAreNamed) {
  config_.tokens_field = "ids";
  expect_bad_line("negative", "{\"ids\":[1,-1]}", "entry 1 of \"ids\" is -1");
  expect_bad_line("2^31", "{\"ids\":[2147483648]}", "2147483648");
  expect_bad_line("-2^63", "{\"ids\":[-9223372036854775808]}", "-9223372036854775808");
  expect_bad_line("2^64-1", "{\"ids\":[18446744073709551615]}", "18446744073709551615");
  expect_bad_line("2^64", "{\"ids\":[18446744073709551616]}", "entry 0 of \"ids\" is a number");
  expect_bad_line("10^400", "{\"ids\":[3, 1" + std::string(400, '0') + "]}", "entry 1 of \"ids\" is a number");
  expect_bad_line("infinite", "{\"ids\":[1e400]}", "entry 0 of \"ids\" is a number with a fraction or an exponent");
  expect_bad_line("fraction", "{\"ids\":[1,2.0]}", "entry 1 of \"ids\" is a number with a fraction");
  expect_bad_line("text", "{\"ids\":[\"1\"]}", "entry 0 of \"ids\" is a text");
  expect_bad_line("list of lists", "{\"ids\":[[1]]}", "entry 0 of \"ids\" is a list");
  expect_bad_line("true", "{\"ids\":[true]}", "a truth value");
  expect_bad_line("a number", "{\"ids\":5}", "\"ids\" is a number");
  expect_bad_line("missing", "{\"text\":\"a\"}", "no field \"ids\"");
}

TEST_F(DatasetTest, BadTextFilesAreNamed) {
  expect_refused("not UTF-8", {write("a.txt", "good\nb\xFF\n")}, ExitCode::kData, "a.txt:2: not valid UTF-8 at byte 2");
  expect_refused("NUL", {write("b.txt", std::string_view("a\0b", 3))}, ExitCode::kData, "NUL character at byte 2");
  expect_refused("UTF-16", {write("c.txt", "\xFF\xFEh")}, ExitCode::kData, "UTF-16");
  EXPECT_EQ(texts(open({write("d.txt", "\xEF\xBB\xBFmark\r\n\xEF\xBB\xBFkept\r")})),
            (std::vector<std::string>{"mark", "\xEF\xBB\xBFkept"}));
  config_.key_field = "id";
  expect_refused("key of plain text", {folder_ / "d.txt"}, ExitCode::kConfig, "plain text has no fields");
  config_ = {};
  config_.tokens_field = "ids";
  expect_refused("tokens of plain text", {folder_ / "d.txt"}, ExitCode::kConfig, "plain text has no fields");
}

TEST_F(DatasetTest, WhatIsNoDataSetIsRefused) {
  expect_refused("no path", {}, ExitCode::kConfig, "names no file");
  expect_refused("empty path", {""}, ExitCode::kConfig, "empty path");
  expect_refused("absent", {folder_ / "absent.jsonl"}, ExitCode::kInputOutput, "cannot be opened");
  expect_refused("absent folder", {folder_ / "absent"}, ExitCode::kInputOutput, "(No such file or directory;");
  expect_refused("no match", {folder_ / "*.jsonl"}, ExitCode::kInputOutput, "no file matches");
  expect_refused("absent table", {folder_ / "x.parquet"}, ExitCode::kInputOutput, "cannot be opened");
  expect_refused("an unknown kind", {write("x.bin", "x")}, ExitCode::kConfig, "(.jsonl, .json, .csv");
  expect_refused("no HDF5", {write("x.h5", "x")}, ExitCode::kData, "no HDF5 file");
  expect_refused("compressed twice", {write("x.parquet.gz", "x")}, ExitCode::kConfig, "\".gz\"");
  expect_refused("not compressed", {write("x.jsonl.gz", "x")}, ExitCode::kData, "data is damaged");
  config_.split = "test";
  expect_refused("split of a file", {write("y.jsonl", "{}")}, ExitCode::kConfig, "is no folder");
  config_.split = "";
  expect_refused("folder", {folder_.path()}, ExitCode::kInputOutput, "is a folder");
  expect_refused("device", {"/dev/null"}, ExitCode::kConfig, "files that end in");
  if (world_.rank() == 0) {
    ASSERT_EQ(::mkfifo((folder_ / "pipe.jsonl").c_str(), 0600), 0);
    ASSERT_EQ(::mkdir((folder_ / "folder.txt").c_str(), 0700), 0);
  }
  world_.barrier();
  expect_refused("pipe", {folder_ / "pipe.jsonl"}, ExitCode::kInputOutput, "a pipe or a device");
  expect_refused("folder in a glob", {folder_ / "*.txt"}, ExitCode::kInputOutput, "is a folder");
}

// One rank indexes such a file and all read it: files of several formats, each rank its own part, in the order of the
// list.
TEST_F(DatasetTest, FilesOfSeveralKindsOverRanks) {
  std::string csv = "id,text\n", json = "[", jsonl;
  for (int i = 0; i < 60'000; ++i) {
    const std::string text = fmt::format("{} {}", i, std::string(static_cast<std::size_t>(i % 300), 'x'));
    csv += fmt::format("{},\"{}\n\"\"\"\r\n", i, text);
    json += fmt::format("{}{{\"text\": \"{}\"}}", i == 0 ? "\n" : ",\n", text);
    jsonl += fmt::format("{{\"text\":\"{}\"}}\n", text);
  }
  json += "\n]\n";
  ASSERT_GT(csv.size(), 2 * kDataBlockBytes);
  const Dataset dataset = open({write("a.csv", csv), write("b.jsonl", jsonl), write("c.json", json)});
  ASSERT_EQ(dataset.num_source_records(), 180'000u);
  EXPECT_EQ(dataset.sha256(), sha256_hex(sha256_hex(csv) + "  a.csv\n" + sha256_hex(jsonl) + "  b.jsonl\n" +
                                         sha256_hex(json) + "  c.json\n"));
  const auto ranks = static_cast<std::uint64_t>(world_.size()), rank = static_cast<std::uint64_t>(world_.rank());
  std::uint64_t next = 180'000 * rank / ranks;
  dataset.for_each({next, 180'000 * (rank + 1) / ranks}, [&](Record&& record) {
    const std::uint64_t i = next % 60'000;
    ASSERT_EQ(record.source_index, next);
    const std::string text = fmt::format("{} {}", i, std::string(i % 300, 'x'));
    ASSERT_TRUE(record.text == (next < 60'000 ? text + "\n\"" : text)) << next << ": " << record.text.substr(0, 40);
    // A row of the CSV file takes two lines, after the header.
    const std::uint64_t line = next < 60'000 ? 2 * i + 2 : next < 120'000 ? i + 1 : i + 2;
    ASSERT_TRUE(record.where.ends_with(fmt::format(":{}", line))) << record.where;
    ++next;
  });
  EXPECT_EQ(next, 180'000 * (rank + 1) / ranks);
}

// Both ways of stopping: while a file is indexed every rank leaves open(); between records for_each() returns.
TEST_F(DatasetTest, StopsAreHonouredInOtherKinds) {
  std::string csv = "text\n";
  for (int i = 0; i < 200'000; ++i) csv += "some words in a row\n";
  config_.paths = {write("stop.csv", csv)};
  int asked = 0;
  EXPECT_THROW(Dataset::open(world_, config_, [&] { return world_.rank() == 0 && ++asked > 2; }), Error);
  const Dataset dataset = Dataset::open(world_, config_);
  std::uint64_t visited = 0;
  dataset.for_each({0, 200'000}, [&](Record&&) { ++visited; }, [&] { return visited == 7; });
  EXPECT_EQ(visited, 7u);
  world_.barrier();
}

// A header longer than the first MiB, so that poll is asked before its end.
TEST_F(DatasetTest, AStopWithinTheHeaderIsNoFaultOfTheData) {
  const std::string path = write("header.csv", "\"" + std::string(3 << 20, 'x') + "\",text\na,b\n");
  const Dataset dataset = open({path});
  ASSERT_EQ(dataset.num_source_records(), 1u);
  int asked = 0;
  dataset.for_each({0, 1}, [](Record&&) { ADD_FAILURE() << "was visited"; }, [&] { return ++asked > 1; });
  EXPECT_EQ(asked, 2);
}

TEST_F(DatasetTest, AStopEndsAnIndexWithoutAPartOfIt) {
  for (const std::string& path : {write("index.csv", "text\na\nb\n"), write("index.json", R"([{"text":"a"}])")}) {
    config_.paths = {path};
    const std::vector<DataFile> files = list_data_files(world_, config_);
    const std::unique_ptr<RecordFormat> format = open_format(files[0], config_);
    EXPECT_EQ(format->index([] { return false; }).back().record, path.ends_with("csv") ? 2u : 1u);
    try {
      format->index([] { return true; });
      ADD_FAILURE() << "went on: " << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kStopped) << error.what();
    }
  }
}

TEST_F(DatasetTest, ChangesDuringTheRunAreSeen) {
  const std::string path = write("changes.txt", "one\ntwo\n");
  const Dataset dataset = open({path});
  write("changes.txt", "one\ntwo\nthree\n");
  try {
    texts(dataset);
    ADD_FAILURE() << "was read";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kInputOutput);
    EXPECT_NE(std::string(error.what()).find("changed during the run"), std::string::npos);
  }
  world_.barrier();
}

TEST(ScanShares, EveryBlockOnceAndLevel) {
  constexpr std::uint64_t B = kDataBlockBytes;
  for (const auto& files : std::vector<std::vector<std::uint64_t>>{
           {}, {0}, {1}, {100 * B}, {100 * B, 1, 0, 3 * B + 1}, {B, B, B, B, B}, {1000 * B, 900 * B}}) {
    std::uint64_t blocks = 0;
    for (const std::uint64_t bytes : files) blocks += (bytes + B - 1) / B;
    for (const int size : {1, 2, 3, 8, 1000}) {
      const ScanShares shares = share_scan(files, size);
      ASSERT_EQ(shares.first_block.size(), static_cast<std::size_t>(size) + 1);
      EXPECT_EQ(shares.first_block.front(), 0u);
      EXPECT_EQ(shares.first_block.back(), blocks);
      EXPECT_TRUE(std::is_sorted(shares.first_block.begin(), shares.first_block.end()));
      for (const int rank : shares.hasher) EXPECT_TRUE(rank >= 0 && rank < size);
    }
  }
  const ScanShares two = share_scan({100 * B}, 2);  // rank 0 hashes, and rank 1 is done first with all the counting
  EXPECT_EQ(two.hasher, std::vector<int>{0});
  EXPECT_EQ(two.first_block, (std::vector<std::uint64_t>{0, 0, 100}));
}

TEST(Newlines, AreCountedAtEveryLength) {
  std::mt19937 random(3);
  for (const std::size_t length : {0u, 1u, 31u, 32u, 33u, 8159u, 8160u, 8161u, 20'000u, 100'001u}) {
    for (const unsigned every : {1u, 2u, 50u}) {
      std::string bytes(length, 'x');
      for (char& c : bytes) c = random() % every == 0 ? '\n' : c;
      EXPECT_EQ(count_newlines(bytes), static_cast<std::uint64_t>(std::count(bytes.begin(), bytes.end(), '\n')));
    }
  }
}

}  // namespace dataset_test
}  // namespace magister
