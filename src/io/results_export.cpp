// `export`: one JSON line a sample, streamed, written beside its final name and renamed at the end.
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>

#include "io/results_reader.h"
#include "magister/core/error.h"
#include "magister/io/results_tools.h"

namespace magister {
namespace {

// Shortest text that reads back to the same float; JSON has no NaN or infinity.
void append_number(std::string& line, float value) {
  if (std::isfinite(value)) {
    fmt::format_to(std::back_inserter(line), "{}", value);
  } else {
    line += "null";
  }
}

void append_number(std::string& line, std::int32_t value) { fmt::format_to(std::back_inserter(line), "{}", value); }

template <typename T>
void append_list(std::string& line, const T* values, std::uint64_t count) {
  line += '[';
  for (std::uint64_t i = 0; i < count; ++i) {
    if (i > 0) line += ',';
    append_number(line, values[i]);
  }
  line += ']';
}

template <typename T>
void append_rows(std::string& line, const std::vector<T>& values, std::uint64_t width) {
  line += '[';
  for (std::uint64_t row = 0; row * width < values.size(); ++row) {
    if (row > 0) line += ',';
    append_list(line, values.data() + row * width, width);
  }
  line += ']';
}

std::string quoted(const std::vector<std::byte>& key) {
  std::string text = "\"";
  for (const std::byte byte : key) {
    const char c = static_cast<char>(byte);
    if (c == '\0') break;
    if (c == '"' || c == '\\') text += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      text += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    } else {
      text += c;
    }
  }
  return text + "\"";
}

std::string sample_line(const ResultsReader& file, std::uint64_t sample) {
  const auto rows = file.read<std::uint64_t>("/samples/offset", sample, sample + 2);
  const std::uint64_t begin = rows[0], end = rows[1];
  const auto numbers = [&](std::string& line, const char* name) {
    const auto values = file.read<float>(std::string("/teacher/") + name, begin, end);
    line += fmt::format(",\"{}\":", name);
    append_list(line, values.data(), values.size());
  };
  std::string line = "{\"key\":" + quoted(file.read_bytes(file.at("/samples/key"), sample, sample + 1));
  line += fmt::format(",\"source_index\":{}", file.read<std::uint64_t>("/samples/source_index", sample, sample + 1)[0]);
  const auto tokens = file.read<std::int32_t>("/tokens/id", begin, end);
  line += ",\"tokens\":";
  append_list(line, tokens.data(), tokens.size());
  const std::uint64_t k = file.at("/teacher/top_id").spec.width;
  line += ",\"top_id\":";
  append_rows(line, file.read<std::int32_t>("/teacher/top_id", begin, end), k);
  line += ",\"top_logprob\":";
  append_rows(line, file.read_logprobs(begin, end), k);
  for (const char* name : {"logsumexp", "target_logprob", "entropy", "tail_mass"}) numbers(line, name);
  return line + "}\n";
}

}  // namespace

void export_jsonl(const std::string& path, const std::string& out_path) {
  const ResultsReader file(path);
  MAGISTER_CHECK(file.complete(), ExitCode::kData, "{}: is not complete (rows would be missing); finish the run first",
                 printable(path));
  const bool to_stdout = out_path == "-";
  const std::string temporary = out_path + ".creating";
  using OpenFile = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;
  OpenFile out(to_stdout ? stdout : std::fopen(temporary.c_str(), "wb"), to_stdout ? std::fflush : std::fclose);
  const auto check = [&](bool good) {
    if (good) return;
    const std::string reason = std::strerror(errno);
    if (!to_stdout) ::unlink(temporary.c_str());
    fail(ExitCode::kInputOutput, "{}: cannot be written ({}; the export is not whole); free space or give another name with --out",
         printable(out_path), reason);
  };
  check(out != nullptr);
  const std::uint64_t num_samples = file.number("num_samples");
  for (std::uint64_t sample = 0; sample < num_samples; ++sample) {
    const std::string line = sample_line(file, sample);
    check(std::fwrite(line.data(), 1, line.size(), out.get()) == line.size());
  }
  check(std::fflush(out.get()) == 0);
  if (to_stdout) return;
  check(::fsync(::fileno(out.get())) == 0);
  out.reset();
  check(std::rename(temporary.c_str(), out_path.c_str()) == 0);
}

}  // namespace magister
