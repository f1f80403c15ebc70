// Prints what io reads, for tests in Python: tensors, metadata, windows of tensors as raw bytes, memory of loading,
// records of data sets. Not installed.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <chrono>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "../support/serve_cases.h"
#include "magister/core/error.h"
#include "magister/core/sha256.h"
#include "magister/io/checkpoint/lora_adapter.h"
#include "magister/io/checkpoint/tensor_file.h"
#include "magister/io/dataset/dataset.h"

namespace {

using magister::TensorFile;
using nlohmann::json;

at::ScalarType dtype_of(const std::string& name) {
  return name == "f32" ? at::kFloat : name == "bf16" ? at::kBFloat16 : at::kHalf;
}

std::string hex(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

// Invalid UTF-8 must reach the test, so texts go in hexadecimal digits.
json shown(const magister::MetadataValue& value) {
  return std::visit(
      [](const auto& held) -> json {
        using Held = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<Held, std::string>) return {{"text", hex(held)}};
        if constexpr (std::is_same_v<Held, std::vector<std::string>>) {
          json list = json::array();
          for (const std::string& text : held) list.push_back(hex(text));
          return {{"texts", list}};
        }
        return {{"value", held}};
      },
      value);
}

int list(const std::string& path, bool with_content) {
  const auto begin = std::chrono::steady_clock::now();
  const auto file = TensorFile::open(path);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  json out = {
      {"seconds", seconds.count()}, {"tensors", json::array()}, {"metadata", json::object()}, {"paths", file->paths()}};
  if (with_content) {
    for (const auto& info : file->tensors())
      out["tensors"].push_back({info.name, to_string(info.type), info.shape, info.num_bytes});
    for (const auto& [key, value] : file->metadata()) out["metadata"][key] = shown(value);
  }
  std::cout << out.dump() << "\n";
  return 0;
}

// Reads lines "name row_begin row_end column_begin column_end dtype padding" and writes the windows' bytes, one after
// the other, to standard output. `padding` elements between two rows of the destination tensor must stay unchanged.
int windows(const std::string& path) {
  const auto file = TensorFile::open(path);
  std::string name, dtype;
  std::int64_t row_begin, row_end, column_begin, column_end, padding;
  while (std::cin >> name >> row_begin >> row_end >> column_begin >> column_end >> dtype >> padding) {
    const std::int64_t rows = row_end - row_begin, columns = column_end - column_begin;
    at::Tensor whole = at::full({rows, columns + padding}, 42, dtype_of(dtype));
    at::Tensor out = whole.narrow(1, 0, columns);
    file->read(name, row_begin, row_end, column_begin, column_end, out);
    if (padding > 0 && !whole.narrow(1, columns, padding).eq(42).all().item<bool>()) {
      std::cerr << name << ": wrote beside its window\n";
      return 1;
    }
    const at::Tensor dense = out.contiguous();
    std::cout.write(static_cast<const char*>(dense.data_ptr()), static_cast<std::streamsize>(dense.nbytes()));
  }
  return 0;
}

std::uint64_t status_bytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field + ":")) return std::stoull(line.substr(field.size() + 1)) << 10;
  }
  return 0;
}

// Loads every tensor whole and keeps it: kept bytes, and the highest resident memory above that of the start.
int memory(const std::string& path, const std::string& dtype) {
  at::set_num_threads(1);
  const auto file = TensorFile::open(path);
  const std::uint64_t before = status_bytes("VmRSS");
  std::ofstream("/proc/self/clear_refs") << 5;  // VmHWM starts over
  const auto begin = std::chrono::steady_clock::now();
  std::vector<at::Tensor> kept;
  std::uint64_t bytes = 0;
  for (const auto& info : file->tensors()) {
    const std::int64_t columns = info.shape.back();
    const std::int64_t rows = info.shape.size() > 1 ? info.shape[0] : 1;
    kept.push_back(at::empty({rows, columns}, dtype_of(dtype)));
    file->read(info.name, 0, rows, 0, columns, kept.back());
    bytes += kept.back().nbytes();
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::cout << json({{"kept", bytes}, {"peak", status_bytes("VmHWM") - before}, {"seconds", seconds.count()}}) << "\n";
  return 0;
}

// Adapters' folders on standard input -> a line each: the exit code, and the message where merging is refused.
int merged(const std::string& path) {
  for (std::string folder; std::getline(std::cin, folder);) {
    try {
      magister::open_merged(TensorFile::open(path), folder);
      std::cout << "0 " << folder << "\n";
    } catch (const magister::Error& error) {
      std::cout << static_cast<int>(error.code()) << " " << error.what() << "\n";
    }
  }
  return 0;
}

// A JSON object of Dataset's settings -> its size, slice and sha256, then every record of the slice, one JSON a line.
int records(const std::string& settings_text) {
  const json settings = json::parse(settings_text);
  magister::DatasetConfig config;
  config.paths = settings.at("paths");
  config.text_field = settings.value("text", "text");
  config.tokens_field = settings.value("tokens", "");
  config.lengths_field = settings.value("lengths", "");
  config.offsets_field = settings.value("offsets", "");
  config.key_field = settings.value("key", "");
  config.messages_field = settings.value("messages", "");
  config.whole_record = settings.value("whole", !config.messages_field.empty());
  config.config = settings.value("config", "");
  config.split = settings.value("split", "");
  config.max_line_bytes = settings.value("max_line_bytes", config.max_line_bytes);
  if (settings.contains("weights")) {
    magister::DatasetMix& mix = config.mix.emplace();
    for (const json& weight : settings["weights"]) mix.sources.push_back({1, weight});
    mix.seed = settings.value("seed", 0ull);
    mix.stop = static_cast<magister::DatasetMix::Stop>(settings.value("stop", 0));
  }
  if (settings.contains("limit")) config.limit = settings["limit"].get<std::uint64_t>();
  const auto begin = std::chrono::steady_clock::now();
  const int stop_at = settings.value("stop_at", 0);  // the time of asking that is answered with a stop; 0: none
  int asked = 0;
  const auto dataset = magister::Dataset::open(magister::Communicator(), config, [&] { return ++asked == stop_at; });
  const std::chrono::duration<double> open_seconds = std::chrono::steady_clock::now() - begin;
  const bool quiet = settings.value("quiet", false);
  std::uint64_t count = 0;
  magister::IndexRange range = dataset.records();
  if (settings.contains("range")) range = {settings["range"][0], settings["range"][1]};
  dataset.for_each(range, [&](magister::Record&& record) {
    ++count;
    if (quiet) return;
    std::cout << json({record.source_index, hex(record.key), hex(record.text), record.tokens, record.where}).dump()
              << "\n";
  });
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::cout << json({{"records", dataset.num_source_records()},
                     {"visited", count},
                     {"sha256", dataset.sha256()},
                     {"open_seconds", open_seconds.count()},
                     {"seconds", seconds.count()},
                     {"peak", status_bytes("VmHWM")}})
            << "\n";
  return 0;
}

int run(int argc, char** argv) {
  const std::string command = argc > 2 ? argv[1] : "";
  try {
    if (command == "list" || command == "open") return list(argv[2], command == "list");
    if (command == "windows") return windows(argv[2]);
    if (command == "memory" && argc > 3) return memory(argv[2], argv[3]);
    if (command == "records") return records(argv[2]);
    if (command == "merged") return merged(argv[2]);
  } catch (const magister::Error& error) {
    std::cerr << error.what() << "\n";
    return static_cast<int>(error.code());
  }
  std::cerr << "usage: io_probe list|open FILE | windows FILE < LINES | memory FILE DTYPE | merged MODEL < FOLDERS | "
               "records JSON\n";
  return 64;
}

}  // namespace

int main(int argc, char** argv) { return magister::test::serve_cases(argc, argv, run); }
