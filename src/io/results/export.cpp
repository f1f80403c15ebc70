// `export` as text: one JSON line or CSV row per sample, streamed column by column, written under a temporary name and
// renamed at the end. JSON: RFC 8259. CSV: RFC 4180; lists are JSON in their cell, and a number that is not finite is
// empty. Numbers that are codes get a second column with their names (export_names.h).
// Floats by std::to_chars: the shortest decimal that reads back to the same float.
#include "magister/io/results/export.h"

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "io/results/columns.h"
#include "io/results/export_names.h"
#include "io/results/foreign.h"
#include "io/results/text_heap.h"
#include "magister/core/error.h"
#include "magister/io/results/tools.h"
#include "magister/io/whole_file.h"

namespace magister {
namespace {

enum class TextFormat { kJsonl, kCsv };

template <typename T>
void append_number(std::string& line, T value) {
  char digits[40];
  line.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}

template <typename T>
void append_values(std::string& line, std::span<const std::byte> bytes, std::size_t row_values, bool& first_row) {
  for (std::size_t at = 0, index = 0; at < bytes.size(); at += sizeof(T), ++index) {
    const bool opens = row_values > 0 && index % row_values == 0;
    if (opens)
      line += std::exchange(first_row, false) ? "[" : ",[";
    else if (row_values > 0 || !std::exchange(first_row, false))
      line += ',';
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isfinite(value))
        append_number(line, value);
      else
        line += "null";
    } else {
      append_number(line, value);
    }
    if (row_values > 0 && (index + 1) % row_values == 0) line += ']';
  }
}

std::string without_padding(std::string_view padded) {
  return std::string(padded.substr(0, padded.find_last_not_of('\0') + 1));
}

// A key without its padding, as a JSON string.
std::string json_text(std::string_view padded) {
  const std::string text = without_padding(padded);
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Writes one sample, column by column; passes the line to the sink whenever it is long.
class SampleWriter {
 public:
  SampleWriter(const ResultsReader& file, const ExportedColumns& exported, TextFormat format, const TextSink& sink)
      : file_(file), csv_(format == TextFormat::kCsv), sink_(sink) {
    const ResultsColumns& columns = file_.columns();
    key_ = &columns.required("/samples/key", ColumnType::kUtf8);
    for (const char* const first : {"key", "source_index", "token_ids"}) names_.name_of("", first);
    add("source_index", columns.required("/samples/source_index", ColumnType::kU64));
    if (columns.has_rows()) add("token_ids", columns.required("/tokens/id", ColumnType::kI32));
    for (const PlacedColumn* column : columns.unit_columns()) {
      const std::string& path = column->spec.path;
      if (path == "/samples/key" || path == "/samples/source_index" || path == "/tokens/id") continue;
      std::optional<DecodedColumn> decoded = decoded_column(file_, exported, column->spec);
      add(names_.name_of(path, column_name(decoded ? decoded->path : path)), *column);
      members_.back().decoded = std::move(decoded);
      const std::optional<NamedColumn> named = names_beside(file_, exported, column->spec);
      if (!named) continue;
      add(names_.name_of("", named->name), *column);
      members_.back().named = named;
    }
  }

  void write_all() {
    if (csv_) write_header();
    const PlacedColumn& offset = file_.columns().at("/samples/offset");
    std::optional<std::uint64_t> begin;  // first row of the sample
    std::uint64_t sample = 0;
    file_.columns().for_each_piece(offset, {0, offset.spec.num_rows},
                                   [&](std::uint64_t, std::span<const std::byte> bytes) {
                                     for (std::size_t at = 0; at < bytes.size(); at += 8) {
                                       std::uint64_t end;
                                       std::memcpy(&end, bytes.data() + at, sizeof end);
                                       if (begin) write_sample(sample++, {*begin, end});
                                       begin = end;
                                     }
                                   });
    sink_(line_);
  }

 private:
  struct Member {
    std::string name, prefix;  // prefix: ,"name":
    const PlacedColumn* column;
    std::unique_ptr<TextHeap> text;    // for strings of any length
    std::optional<NamedColumn> named;  // write its names instead of the numbers
    std::optional<DecodedColumn> decoded;
  };

  void add(const std::string& name, const PlacedColumn& column) {
    members_.push_back({name, csv_ ? "," : "," + json_text(name) + ":", &column, nullptr, std::nullopt, std::nullopt});
    if (column.spec.type == ColumnType::kText)
      members_.back().text = std::make_unique<TextHeap>(file_.columns(), column);
  }

  void write_sample(std::uint64_t sample, IndexRange rows) {
    MAGISTER_CHECK(rows.begin <= rows.end, ExitCode::kData,
                   "{}: sample {} has rows {} to {} (the file is damaged); run check", printable(file_.path()), sample,
                   rows.begin, rows.end);
    std::string key(key_->row_bytes(), '\0');
    file_.columns().read(*key_, sample, std::as_writable_bytes(std::span(key)));
    std::size_t cell = line_.size();
    line_ += csv_ ? without_padding(key) : "{\"key\":" + json_text(key);
    if (csv_) quote_csv_cell(line_, cell, true);
    for (const Member& member : members_) {
      line_ += member.prefix;
      cell = line_.size();
      write_member(member, sample, rows);
      const ColumnType type = member.column->spec.type;
      const bool is_text = !member.named && (type == ColumnType::kText || type == ColumnType::kUtf8);
      if (csv_) quote_csv_cell(line_, cell, is_text), flush_if_long();
    }
    line_ += csv_ ? "\r\n" : "}\n";
    flush_if_long();
  }

  void write_header() {
    line_ = "key";
    for (const Member& member : members_) line_ += "," + member.name;
    line_ += "\r\n";
  }

  // A CSV cell is quoted as a whole, so it must be in memory completely.
  void write_member(const Member& member, std::uint64_t sample, IndexRange rows) {
    if (member.named) return write_names(*member.named, sample);
    const bool of_samples = member.column->spec.extent == ColumnSpec::Extent::kSamples;
    if (!of_samples) line_ += '[';
    if (member.text) {
      const std::string text = member.text->text(sample);
      const bool as_it_is = csv_ || (holds_json(member.column->spec) && nlohmann::json::accept(text));
      line_ += as_it_is ? text : json_text(text);
      if (!csv_) flush_if_long();
      return;
    }
    bool first_row = true;
    file_.columns().for_each_piece(*member.column, of_samples ? IndexRange{sample, sample + 1} : rows,
                                   [&](std::uint64_t, std::span<const std::byte> bytes) {
                                     append(member, bytes, first_row);
                                     if (!csv_) flush_if_long();
                                   });
    if (member.column->spec.type == ColumnType::kUtf8) {
      const std::string text = std::exchange(text_, {});
      line_ += csv_ && of_samples ? without_padding(text) : json_text(text);
    }
    if (!of_samples) line_ += ']';
  }

  // A CSV cell holds a single name without quotes of its own.
  void write_names(const NamedColumn& named, std::uint64_t sample) {
    const nlohmann::json names = names_in_row(file_, named, sample);
    line_ += csv_ && names.is_string() ? names.get<std::string>()
                                       : names.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }

  void append(const Member& member, std::span<const std::byte> bytes, bool& first_row) {
    const ColumnSpec& spec = member.column->spec;
    const std::size_t row_values = spec.width;
    if (member.decoded) {
      member.decoded->decode(bytes, numbers_);
      return append_values<std::int32_t>(line_, std::as_bytes(std::span(numbers_)), member.decoded->width, first_row);
    }
    switch (spec.type) {
      case ColumnType::kU8:
        return append_values<std::uint8_t>(line_, bytes, row_values, first_row);
      case ColumnType::kI32:
        return append_values<std::int32_t>(line_, bytes, row_values, first_row);
      case ColumnType::kU32:
        return append_values<std::uint32_t>(line_, bytes, row_values, first_row);
      case ColumnType::kU64:
        return append_values<std::uint64_t>(line_, bytes, row_values, first_row);
      case ColumnType::kF32:
        return append_values<float>(line_, bytes, row_values, first_row);
      case ColumnType::kF16:
        to_floats(ColumnType::kF16, bytes, floats_);
        return append_values<float>(line_, std::as_bytes(std::span(floats_)), row_values, first_row);
      case ColumnType::kUtf8:
        text_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        return;
      case ColumnType::kText:
        return;  // read by TextHeap
    }
  }

  void flush_if_long() {
    if (line_.size() < (1 << 20)) return;
    sink_(line_);
    line_.clear();
  }

  const ResultsReader& file_;
  const bool csv_;
  ExportedNames names_;
  const TextSink& sink_;
  const PlacedColumn* key_;
  std::vector<Member> members_;
  std::vector<float> floats_;
  std::vector<std::int32_t> numbers_;
  std::string line_, text_;  // text_: value of a text column, collected from its pieces
};

// EPIPE is no error: the reader closed the pipe and needs no more data.
void write_to_standard_output(std::string_view piece) {
  if (std::fwrite(piece.data(), 1, piece.size(), stdout) == piece.size() || errno == EPIPE) return;
  fail(ExitCode::kInputOutput, "standard output: {} (the export is cut off); make room or write elsewhere",
       std::strerror(errno));
}

void export_text(const ResultsReader& file, const ExportedColumns& columns, TextFormat format, const std::string& out) {
  write_text(out, [&](const TextSink& sink) { SampleWriter(file, columns, format, sink).write_all(); });
}

}  // namespace

void write_text(const std::string& out, const std::function<void(const TextSink& sink)>& write) {
  if (out == "-") {
    write(write_to_standard_output);
    if (std::fflush(stdout) != 0) write_to_standard_output("\n");
    return;
  }
  WholeFile target(out, WholeFile::Existing::kRefused);
  write([&](std::string_view piece) { target.write(piece); });
  target.keep();
}

void quote_csv_cell(std::string& line, std::size_t begin, bool is_text) {
  if (!is_text && line.compare(begin, std::string::npos, "null") == 0) line.resize(begin);
  if (line.find_first_of(",\"\r\n", begin) == std::string::npos) return;
  std::string cell = "\"";
  for (std::size_t i = begin; i < line.size(); ++i) {
    if (line[i] == '"') cell += '"';
    cell += line[i];
  }
  line.replace(begin, std::string::npos, cell += '"');
}

ResultsReader open_complete_results(const std::string& path) {
  ResultsReader file = open_foreign_results(existing_results_path(path));
  MAGISTER_CHECK(file.complete(), ExitCode::kData, "{}: is not complete (rows would be missing); finish its run first",
                 printable(file.path()));
  return file;
}

void export_jsonl(const ResultsReader& file, const ExportedColumns& columns, const std::string& out) {
  export_text(file, columns, TextFormat::kJsonl, out);
}

void export_csv(const ResultsReader& file, const ExportedColumns& columns, const std::string& out) {
  export_text(file, columns, TextFormat::kCsv, out);
}

}  // namespace magister
