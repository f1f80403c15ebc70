// Damaged and hostile tensor files: each is refused with the right exit code, by a message that names what is wrong, in
// bounded time and memory. Files are written byte by byte; the good one from which each case departs is read first.
#include "magister/io/checkpoint/tensor_file.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <functional>

#include "io/scratch_folder.h"
#include "magister/core/error.h"
#include "magister/io/checkpoint/safetensors_writer.h"
#include "magister/io/file_version.h"

namespace magister {
namespace tensor_file_test {

using test::ScratchFolder;

template <typename T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}
std::string text(const std::string& value) { return raw<std::uint64_t>(value.size()) + value; }

constexpr std::uint32_t kU32 = 4, kI32 = 5, kBool = 7, kText = 8, kList = 9;

// A GGUF file in pieces, any of which a case may replace.
struct Gguf {
  std::string magic = "GGUF";
  std::uint32_t version = 3;
  std::string num_tensors = raw<std::uint64_t>(2), num_pairs = raw<std::uint64_t>(2);
  std::string pairs = text("general.architecture") + raw(kText) + text("llama") + text("general.alignment") +
                      raw(kU32) + raw<std::uint32_t>(32);
  std::string first = tensor("a", {32, 2}, 8, 0);   // Q8_0: 68 bytes
  std::string second = tensor("b", {3, 5}, 0, 96);  // F32: 60 bytes
  std::size_t data_bytes = 96 + 60;

  static std::string tensor(const std::string& name, const std::vector<std::uint64_t>& dimensions, std::uint32_t type,
                            std::uint64_t offset) {
    std::string bytes = text(name) + raw(static_cast<std::uint32_t>(dimensions.size()));
    for (const std::uint64_t size : dimensions) bytes += raw(size);
    return bytes + raw(type) + raw(offset);
  }
  void add_pair(const std::string& pair) {
    num_pairs = raw<std::uint64_t>(3);
    pairs += pair;
  }
  std::string header() const { return magic + raw(version) + num_tensors + num_pairs + pairs + first + second; }
  std::string bytes() const {
    std::string all = header();
    all.resize((all.size() + 31) / 32 * 32 + data_bytes);
    return all;
  }
};

std::string safetensors(const std::string& header, std::size_t data_bytes = 24) {
  return raw<std::uint64_t>(header.size()) + header + std::string(data_bytes, '\0');
}
constexpr const char* kGoodHeader =
    R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
    R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[16,24]}})";

// A header with tensor "a" replaced.
std::string with(const std::string& a) {
  return R"({"a":)" + a + R"(,"b":{"dtype":"BF16","shape":[4],"data_offsets":[16,24]}})";
}

struct Case {
  std::string name;
  std::string bytes;
  std::string wanted;  // part of the message
};

long peak_kilobytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

void expect_refused(const std::string& path, const Case& wrong, ExitCode code = ExitCode::kData) {
  SCOPED_TRACE(wrong.name);
  const long before = peak_kilobytes();
  const auto begin = std::chrono::steady_clock::now();
  try {
    TensorFile::open(path);
    ADD_FAILURE() << "was not refused";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.code(), code) << message;
    EXPECT_NE(message.find(wrong.wanted), std::string::npos) << "\"" << wrong.wanted << "\" is not in: " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
    EXPECT_LT(message.size(), 1200u);
    EXPECT_NE(message.find("; "), std::string::npos) << message;
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
  EXPECT_LT(peak_kilobytes() - before, 256 << 10);
}

void expect_all_refused(const std::string& name, const std::vector<Case>& cases) {
  const ScratchFolder folder;
  for (const Case& wrong : cases) expect_refused(folder.write(name, wrong.bytes), wrong);
}

template <typename Change>
Case gguf_case(const std::string& name, const std::string& wanted, Change change) {
  Gguf file;
  change(file);
  return {name, file.bytes(), wanted};
}

TEST(TensorFile, ReadsTheGoodFiles) {
  const ScratchFolder folder;
  const auto gguf = TensorFile::open(folder.write("good.gguf", Gguf().bytes()));
  ASSERT_EQ(gguf->tensors().size(), 2u);
  EXPECT_EQ(gguf->find("a")->shape, (std::vector<std::int64_t>{2, 32}));
  EXPECT_EQ(gguf->find("b")->num_bytes, 60u);
  EXPECT_EQ(gguf->find("c"), nullptr);
  EXPECT_EQ(std::get<std::string>(gguf->metadata().at("general.architecture")), "llama");
  const auto other = TensorFile::open(folder.write("good.safetensors", safetensors(kGoodHeader)));
  ASSERT_EQ(other->tensors().size(), 2u);
  EXPECT_EQ(other->find("b")->type, StorageType::kBF16);
  EXPECT_EQ(TensorFile::open(folder.write("none.safetensors", safetensors("{}", 0)))->tensors().size(), 0u);
  EXPECT_EQ(TensorFile::open(folder.write("spaces.safetensors", safetensors(std::string(kGoodHeader) + "   ")))
                ->tensors()
                .size(),
            2u);
}

TEST(TensorFile, RefusesBadGgufHeaders) {
  constexpr std::uint64_t kHuge = 1ull << 63;
  std::vector<Case> cases = {
      gguf_case("wrong magic", "does not begin with", [](Gguf& f) { f.magic = "GGML"; }),
      gguf_case("version 1", "version 1", [](Gguf& f) { f.version = 1; }),
      gguf_case("version 4", "version 4", [](Gguf& f) { f.version = 4; }),
      gguf_case("big endian", "big-endian", [](Gguf& f) { f.version = 3u << 24; }),
      gguf_case("2^63 tensors", "number of tensors", [](Gguf& f) { f.num_tensors = raw(kHuge); }),
      gguf_case("2^64-1 pairs", "number of metadata pairs", [](Gguf& f) { f.num_pairs = raw(~0ull); }),
      gguf_case("one tensor too many", "ends at byte",
                [](Gguf& f) {
                  f.num_tensors = raw<std::uint64_t>(3);
                  f.data_bytes = 0;
                }),
      gguf_case("key of 2^63 bytes", "a metadata key", [](Gguf& f) { f.add_pair(raw(kHuge)); }),
      gguf_case("empty key", "keys 1 to", [](Gguf& f) { f.add_pair(text("") + raw(kBool) + "\1"); }),
      gguf_case("key twice", "there twice",
                [](Gguf& f) { f.add_pair(text("general.alignment") + raw(kU32) + raw(32)); }),
      gguf_case("metadata type 13", "type 13", [](Gguf& f) { f.add_pair(text("k") + raw(13)); }),
      gguf_case("text of 2^63 bytes", "a metadata text",
                [](Gguf& f) { f.add_pair(text("k") + raw(kText) + raw(kHuge)); }),
      gguf_case("text of 2^64-1 bytes", "a metadata text",
                [](Gguf& f) { f.add_pair(text("k") + raw(kText) + raw(~0ull)); }),
      gguf_case("list of 2^63 texts", "metadata list",
                [](Gguf& f) { f.add_pair(text("k") + raw(kList) + raw(kText) + raw(kHuge)); }),
      gguf_case("list of 2^62 i32", "metadata list",
                [](Gguf& f) { f.add_pair(text("k") + raw(kList) + raw(kI32) + raw(kHuge / 2)); }),
      gguf_case("list of lists", "list of type 9",
                [](Gguf& f) { f.add_pair(text("k") + raw(kList) + raw(kList) + raw(1ull)); }),
      gguf_case("list of type 77", "list of type 77",
                [](Gguf& f) { f.add_pair(text("k") + raw(kList) + raw(77) + raw(1ull)); }),
      gguf_case("truth value 2", "truth value of 2", [](Gguf& f) { f.add_pair(text("k") + raw(kBool) + "\2"); }),
      gguf_case("u64 list above i64", "2^63 - 1",
                [](Gguf& f) { f.add_pair(text("k") + raw(kList) + raw(10) + raw(1ull) + raw(~0ull)); }),
      gguf_case("control characters in a key", "\\x1B", [](Gguf& f) { f.add_pair(text("k\033[2J") + raw(99)); }),
      gguf_case("alignment 0", "alignment", [](Gguf& f) { f.pairs.replace(f.pairs.size() - 4, 4, raw(0)); }),
      gguf_case("alignment 24", "alignment", [](Gguf& f) { f.pairs.replace(f.pairs.size() - 4, 4, raw(24)); }),
      gguf_case("alignment 2^30", "alignment", [](Gguf& f) { f.pairs.replace(f.pairs.size() - 4, 4, raw(1 << 30)); }),
      gguf_case("alignment as text", "alignment",
                [](Gguf& f) {
                  f.pairs = text("x") + raw(kBool) + "\1" + text("general.alignment") + raw(kText) + text("32");
                }),
      gguf_case("one of three parts without its number", "split.no is missing",
                [](Gguf& f) { f.add_pair(text("split.count") + raw(kU32) + raw(3)); }),
      gguf_case("2^32-1 parts", "split.count is not a whole number from 0 to 99999",
                [](Gguf& f) { f.add_pair(text("split.count") + raw(kU32) + raw(~0u)); }),
      gguf_case("-1 parts", "split.count is not a whole number",
                [](Gguf& f) { f.add_pair(text("split.count") + raw(kI32) + raw(-1)); }),
      gguf_case("parts as text", "split.count is not a whole number",
                [](Gguf& f) { f.add_pair(text("split.count") + raw(kText) + text("3")); }),
      gguf_case("no dimensions", "0 dimensions", [](Gguf& f) { f.first = Gguf::tensor("a", {}, 0, 0); }),
      gguf_case("five dimensions", "5 dimensions", [](Gguf& f) { f.first = Gguf::tensor("a", {2, 2, 2, 2, 2}, 0, 0); }),
      gguf_case("2^32-1 dimensions", "4294967295 dimensions", [](Gguf& f) { f.first = text("a") + raw(~0u); }),
      gguf_case("dimension 2^63", "dimension of", [](Gguf& f) { f.first = Gguf::tensor("a", {kHuge}, 0, 0); }),
      gguf_case("product beyond 64 bits", "64 bits",
                [](Gguf& f) { f.first = Gguf::tensor("a", {1ull << 40, 1 << 20, 32}, 0, 0); }),
      gguf_case("bytes beyond 64 bits", "64 bits",
                [](Gguf& f) { f.first = Gguf::tensor("a", {1ull << 40, 1 << 22}, 28, 0); }),
      gguf_case("type 99", "ggml type 99", [](Gguf& f) { f.first = Gguf::tensor("a", {32}, 99, 0); }),
      gguf_case("Q8_K by name", "ggml type 15", [](Gguf& f) { f.first = Gguf::tensor("a", {256}, 15, 0); }),
      gguf_case("half a block", "whole number of Q8_0 blocks",
                [](Gguf& f) { f.first = Gguf::tensor("a", {48, 2}, 8, 0); }),
      gguf_case("name twice", "there twice", [](Gguf& f) { f.second = Gguf::tensor("a", {3, 5}, 0, 96); }),
      gguf_case("empty name", "name of 0 bytes", [](Gguf& f) { f.second = Gguf::tensor("", {3, 5}, 0, 96); }),
      gguf_case("name of 600 bytes", "name of 600 bytes",
                [](Gguf& f) { f.second = Gguf::tensor(std::string(600, 'n'), {3, 5}, 0, 96); }),
      gguf_case("overlap", "overlap", [](Gguf& f) { f.second = Gguf::tensor("b", {3, 5}, 0, 64); }),
      gguf_case("hole", "hole",
                [](Gguf& f) {
                  f.second = Gguf::tensor("b", {3, 5}, 0, 128);
                  f.data_bytes += 32;
                }),
      gguf_case("not aligned", "alignment",
                [](Gguf& f) {
                  f.second = Gguf::tensor("b", {3, 5}, 0, 97);
                  f.data_bytes += 32;
                }),
      gguf_case("offset 2^64-32", "was expected", [](Gguf& f) { f.second = Gguf::tensor("b", {3, 5}, 0, ~31ull); }),
      gguf_case("data cut short", "the file has", [](Gguf& f) { f.data_bytes -= 1; }),
      gguf_case("no data", "the file has", [](Gguf& f) { f.data_bytes = 0; }),
      {"empty file", "", "ends at byte 0"},
      {"only zeros", std::string(4096, '\0'), "does not begin with"},
  };
  const std::string header = Gguf().header();
  for (std::size_t cut = 0; cut < header.size(); ++cut) {
    cases.push_back({fmt::format("cut after {} bytes", cut), header.substr(0, cut), ": "});
  }
  expect_all_refused("bad.gguf", cases);
}

// Headers that are no more than large: what they claim is there, but no model needs it.
TEST(TensorFile, HoldsItsMemoryBudget) {
  std::vector<Case> cases;
  cases.push_back(gguf_case("30 million empty texts", "MiB of memory", [](Gguf& f) {
    f.add_pair(text("k") + raw(kList) + raw(kText) + raw<std::uint64_t>(30'000'000) + std::string(240'000'000, '\0'));
  }));
  cases.push_back(gguf_case("one text of 200 MB", "MiB of memory",
                            [](Gguf& f) { f.add_pair(text("k") + raw(kText) + text(std::string(200'000'000, 'x'))); }));
  cases.push_back(gguf_case("ten million tensors", "says it holds", [](Gguf& f) {
    f.num_tensors = raw<std::uint64_t>(700'000);
    f.data_bytes = 30'000'000;
  }));
  expect_all_refused("large.gguf", cases);
  const std::string million(10'000'000, '[');
  expect_all_refused(
      "large.safetensors",
      {{"ten million brackets", safetensors("{\"a\":" + million), "is a list"},
       {"deep __metadata__", safetensors("{\"__metadata__\":{\"a\":" + million), "texts must be there"},
       {"a dimension of ten million digits",
        safetensors(with("{\"dtype\":\"F32\",\"shape\":[" + std::string(10'000'000, '1') + "]}")), "number overflow"},
       {"shape of ones", safetensors(with("{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1]}")), "8 dimensions"}});
}

TEST(TensorFile, RefusesBadSafetensorsHeaders) {
  const std::string good = kGoodHeader;
  const auto tensor = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return safetensors(with("{\"dtype\":" + dtype + ",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}"));
  };
  const std::vector<Case> cases = {
      {"empty file", "", "has 0 bytes"},
      {"seven bytes", "1234567", "has 7 bytes"},
      {"length 2^63", raw(1ull << 63) + good, "its header says"},
      {"length 2^64-1", raw(~0ull) + good, "its header says"},
      {"length beyond the file", raw<std::uint64_t>(good.size() + 100) + good, "its header says"},
      {"length over the limit", raw<std::uint64_t>(100'000'001) + std::string(100'000'100, ' '), "its header says"},
      {"empty header", safetensors(""), "does not begin with"},
      {"a list", safetensors("[1]"), "does not begin with"},
      {"space first", safetensors(" " + good), "does not begin with"},
      {"cut JSON", safetensors(good.substr(0, good.size() - 3)), "not valid JSON"},
      {"two objects", safetensors(good + "{}"), "not valid JSON"},
      {"NUL padding", safetensors(good + std::string(3, '\0')), "NUL byte"},
      {"not UTF-8", safetensors("{\"\xFF\":{}}"), "UTF-8"},
      {"lone surrogate", safetensors(R"({"\ud800":{}})"), "surrogate"},
      {"tensor is a number", safetensors(with("5")), "tensor a is a number"},
      {"no dtype", safetensors(with(R"({"shape":[2,2],"data_offsets":[0,16]})")), "lacks its dtype"},
      {"no shape", safetensors(with(R"({"dtype":"F32","data_offsets":[0,16]})")), "lacks its dtype"},
      {"one offset", tensor("\"F32\"", "[2,2]", "[0]"), "lacks its dtype"},
      {"three offsets", tensor("\"F32\"", "[2,2]", "[0,16,24]"), "more than 2"},
      {"dtype is a number", tensor("7", "[2,2]", "[0,16]"), "dtype of tensor a is a number"},
      {"dtype F8_E5M2", tensor("\"F8_E5M2\"", "[16]", "[0,16]"), "F8_E5M2"},
      {"dtype unknown", tensor("\"X9\"", "[16]", "[0,16]"), "X9"},
      {"shape is a text", tensor("\"F32\"", "\"2,2\"", "[0,16]"), "shape of tensor a is a text"},
      {"negative dimension", tensor("\"F32\"", "[-2,-2]", "[0,16]"), "holds -2"},
      {"fraction", tensor("\"F32\"", "[2.5,2]", "[0,16]"), "holds 2.5"},
      {"dimension in a list", tensor("\"F32\"", "[[2],2]", "[0,16]"), "a list"},
      {"dimension 2^64", tensor("\"F32\"", "[18446744073709551616]", "[0,16]"), "18446744073709551616"},
      {"product beyond 64 bits", tensor("\"F32\"", "[4611686018427387904,4]", "[0,16]"), "64 bits"},
      {"bytes beyond 64 bits", tensor("\"F64\"", "[4611686018427387904,1]", "[0,16]"), "64 bits"},
      {"product 2^64 + 4", tensor("\"F32\"", "[4294967297,4294967297]", "[0,16]"), "64 bits"},
      {"too few bytes", tensor("\"F32\"", "[2,2]", "[0,12]"), "need 16 bytes"},
      {"end before begin", tensor("\"F32\"", "[2,2]", "[16,0]"), "need 16 bytes"},
      {"negative offset", tensor("\"F32\"", "[2,2]", "[-16,0]"), "holds -16"},
      {"overlap", tensor("\"F32\"", "[2,2]", "[8,24]"), "was expected"},
      {"hole",
       safetensors(
           R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"BF16","shape":[4],"data_offsets":[16,24]}})"),
       "was expected"},
      {"beyond the file", safetensors(good, 23), "but the file has"},
      {"bytes left over", safetensors(good, 25), "the tensors end at"},
      {"name twice",
       safetensors(
           R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[4],"data_offsets":[8,24]}})"),
       "there twice"},
      {"field twice", safetensors(with(R"({"dtype":"F32","dtype":"F32","shape":[2,2],"data_offsets":[0,16]})")),
       "there twice"},
      {"unknown field", safetensors(with(R"({"dtype":"F32","shape":[2,2],"data_offsets":[0,16],"x":1})")),
       "field \"x\""},
      {"metadata of numbers", safetensors(R"({"__metadata__":{"a":1}})", 0), "__metadata__"},
      {"empty name", safetensors(R"({"":{"dtype":"F32","shape":[6],"data_offsets":[0,24]}})"), "name of 0 bytes"},
      {"escape in a name", safetensors(R"({"\u001b[2J":7})"), "\\x1B"},
  };
  expect_all_refused("bad.safetensors", cases);
}

TEST(TensorFile, RefusesBadIndexes) {
  const std::vector<Case> cases = {
      {"empty", "", "not valid JSON"},
      {"a list", "[]", "weight_map"},
      {"no weight_map", R"({"metadata":{}})", "no \"weight_map\""},
      {"weight_map is a list", R"({"weight_map":[]})", "\"weight_map\" is a list"},
      {"empty weight_map", R"({"weight_map":{}})", "empty one"},
      {"shard is a number", R"({"weight_map":{"a":1}})", "the shard of tensor a"},
      {"absolute", R"({"weight_map":{"a":"/etc/passwd"}})", "/etc/passwd"},
      {"climbs", R"({"weight_map":{"a":"../good.safetensors"}})", "../good.safetensors"},
      {"in a folder", R"({"weight_map":{"a":"x/good.safetensors"}})", "x/good.safetensors"},
      {"dots", R"({"weight_map":{"a":".."}})", "\"..\""},
      {"empty name", R"({"weight_map":{"a":""}})", "names the shard"},
      {"tensor twice", R"({"weight_map":{"a":"good.safetensors","a":"good.safetensors"}})", "there twice"},
      {"tensor in no shard", R"({"weight_map":{"a":"good.safetensors","zz":"good.safetensors"}})",
       "tensor zz is not in"},
      {"two shards with one tensor", R"({"weight_map":{"a":"good.safetensors","b":"copy.safetensors"}})",
       "there twice"},
      {"deep", "{\"x\":" + std::string(100000, '['), "nested deeper"},
  };
  const ScratchFolder folder;
  folder.write("good.safetensors", safetensors(kGoodHeader));
  folder.write("copy.safetensors", safetensors(kGoodHeader));
  for (const Case& wrong : cases) {
    folder.write("model.safetensors.index.json", wrong.bytes);
    expect_refused(folder.path(), wrong);
  }
  folder.write("model.safetensors.index.json", R"({"weight_map":{"a":"absent.safetensors"}})");
  expect_refused(folder.path(), {"missing shard", "", "absent.safetensors"}, ExitCode::kInputOutput);
  folder.write("model.safetensors.index.json", R"({"weight_map":{"a":"good.safetensors","b":"good.safetensors"}})");
  EXPECT_EQ(TensorFile::open(folder.path())->tensors().size(), 2u);
}

TEST(TensorFile, RefusesWhatIsNoFile) {
  const ScratchFolder folder;
  for (const char* extension : {".gguf", ".safetensors"}) {
    const std::string pipe = folder / (std::string("pipe") + extension);
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    expect_refused(pipe, {"FIFO", "", "is a pipe"}, ExitCode::kInputOutput);
    expect_refused(folder / (std::string("absent") + extension), {"absent", "", "no such model"},
                   ExitCode::kInputOutput);
    std::filesystem::create_symlink("/dev/null", folder / (std::string("device") + extension));
    expect_refused(folder / (std::string("device") + extension), {"device", "", "is a device"}, ExitCode::kInputOutput);
    const std::string closed = folder.write(std::string("closed") + extension, "x");
    if (::geteuid() != 0) {  // root reads everything
      ::chmod(closed.c_str(), 0);
      expect_refused(closed, {"closed", "", "cannot be opened"}, ExitCode::kInputOutput);
    }
  }
  expect_refused(folder.path(), {"empty folder", "", "neither model.safetensors"}, ExitCode::kInputOutput);
  expect_refused(folder.write("model.bin", "x"), {"extension", "", ".bin"});
  expect_refused(std::string(5000, 'x') + ".gguf", {"long name", "", "cannot be opened"}, ExitCode::kInputOutput);
}

// As a file that was cut off since it was opened.
TEST(TensorFile, MetadataOfACutFileAreRefusedWithWhatToDo) {
  const ScratchFolder folder;
  try {
    safetensors_metadata(folder.write("cut.safetensors", "1234567"));
    ADD_FAILURE() << "was not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kData);
    EXPECT_NE(std::string(error.what()).find("too short for a safetensors file (it was cut off"), std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("; make it again"), std::string::npos) << error.what();
  }
}

TEST(TensorFile, SeesAFileThatShrank) {
  const ScratchFolder folder;
  const std::string path = folder.write("shrinks.safetensors", safetensors(kGoodHeader));
  const auto file = TensorFile::open(path);
  at::Tensor out = at::empty({2, 2});
  file->read("a", 0, 2, 0, 2, out);
  ASSERT_EQ(::truncate(path.c_str(), 100), 0);
  try {
    file->read("a", 0, 2, 0, 2, out);
    ADD_FAILURE() << "was read";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kInputOutput);
  }
}

TEST(TensorFile, SeesAFileThatWasWrittenOver) {
  const ScratchFolder folder;
  const std::string path = folder.write("written.safetensors", safetensors(kGoodHeader));
  FileVersions versions;
  versions.add(path);
  versions.add(folder / "absent");
  const auto file = TensorFile::open(path);
  at::Tensor out = at::empty({2, 2});
  file->read("a", 0, 2, 0, 2, out);
  folder.write("absent", "there now, and never seen");
  versions.check_unchanged();
  std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) + std::chrono::milliseconds(1));
  const auto refused = [](const std::function<void()>& call, const std::string& words) {
    try {
      call();
      ADD_FAILURE() << "not seen: " << words;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kInputOutput);
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  };
  refused([&] { file->read("a", 0, 2, 0, 2, out); }, "was written to since it was opened");
  refused([&] { versions.check_unchanged(); }, "was changed since this job opened it");
  std::filesystem::remove(path);
  refused([&] { versions.check_unchanged(); }, "is gone since this job opened it");
}

// Resident bytes of a file's mapping.
std::uint64_t resident_bytes(const std::string& path) {
  std::ifstream lines("/proc/self/smaps");
  bool is_file = false;
  std::uint64_t bytes = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.find('-') < line.find(' ')) is_file = line.ends_with(path);
    if (is_file && line.starts_with("Rss:")) bytes += 1024 * std::stoull(line.substr(4));
  }
  return bytes;
}

// A touch maps pages beside it, which would stay with every part that is read.
TEST(TensorFile, PagesThatWereReadDoNotStay) {
  constexpr std::int64_t kRows = 4096, kColumns = 1000, kPart = 61;
  const ScratchFolder folder;
  const std::string path = folder / "large.safetensors";
  write_safetensors(path, {{"a", at::arange(kRows * kColumns, at::kFloat).view({kRows, kColumns})}}, {});
  const auto file = TensorFile::open(path);
  at::Tensor out = at::empty({kPart, kColumns});
  double sum = 0;
  for (std::int64_t row = 0; row + kPart <= kRows; row += kPart) {
    file->read("a", row, row + kPart, 0, kColumns, out);
    sum += out[0][0].item<double>();
  }
  EXPECT_EQ(sum, 1000.0 * 61 * 67 * 66 / 2);
  EXPECT_LE(resident_bytes(path), 65536u);
}

TEST(TensorFile, RefusesWindowsThatDoNotFit) {
  const ScratchFolder folder;
  const auto file = TensorFile::open(folder.write("good.safetensors", safetensors(kGoodHeader)));
  const auto code = [&](const char* name, std::int64_t row, std::int64_t rows, std::int64_t column,
                        std::int64_t columns, at::Tensor out) {
    try {
      file->read(name, row, rows, column, columns, out);
      return ExitCode::kDone;
    } catch (const Error& error) {
      return error.code();
    }
  };
  EXPECT_EQ(code("a", 0, 2, 0, 2, at::empty({2, 2})), ExitCode::kDone);
  EXPECT_EQ(code("a", 0, 0, 1, 1, at::empty({0, 0})), ExitCode::kDone);
  EXPECT_EQ(code("zz", 0, 2, 0, 2, at::empty({2, 2})), ExitCode::kData);
  EXPECT_EQ(code("a", 0, 3, 0, 2, at::empty({3, 2})), ExitCode::kInternal);
  EXPECT_EQ(code("a", -1, 1, 0, 2, at::empty({2, 2})), ExitCode::kInternal);
  EXPECT_EQ(code("a", 0, 2, 0, 3, at::empty({2, 3})), ExitCode::kInternal);
  EXPECT_EQ(code("a", 0, 2, 0, 2, at::empty({2, 3})), ExitCode::kInternal);
  EXPECT_EQ(code("a", 0, 2, 0, 2, at::empty({2, 2}).t()), ExitCode::kInternal);
  EXPECT_EQ(code("a", 0, 2, 0, 2, at::empty({2, 2}, at::kLong)), ExitCode::kInternal);
}

}  // namespace tensor_file_test
}  // namespace magister
