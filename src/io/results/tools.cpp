// `info`: the content of a results file, for people and for programs. One JSON object serves both.
#include "magister/io/results/tools.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "io/results/columns.h"
#include "io/results/foreign.h"
#include "magister/core/error.h"
#include "magister/core/units_of_measure.h"
#include "magister/io/results/reader.h"

namespace magister {
namespace {

using nlohmann::ordered_json;

const char* type_name(ColumnType type) {
  switch (type) {
    case ColumnType::kU8:
      return "u8";
    case ColumnType::kI32:
      return "i32";
    case ColumnType::kU32:
      return "u32";
    case ColumnType::kU64:
      return "u64";
    case ColumnType::kF16:
      return "f16";
    case ColumnType::kF32:
      return "f32";
    case ColumnType::kUtf8:
      return "utf-8";
    case ColumnType::kText:
      return "text";
  }
  return "?";
}

// Adds the numbers of committed units, samples and tokens: all minus the pending ones.
void add_progress(const ResultsReader& file, ordered_json& all) {
  const ResultsColumns& columns = file.columns();
  const std::uint64_t n = columns.num_samples(), u = columns.num_units();
  const std::uint64_t tokens = columns.rows<std::uint64_t>("/samples/offset", n, 1)[0];
  const UnitSet pending = columns.pending_units();
  OffsetCursor unit_begin(columns, "/commit/unit_begin");
  std::uint64_t pending_samples = 0;
  pending.for_each_run([&](IndexRange run) {
    const std::uint64_t first = unit_begin.at(run.begin);
    pending_samples += unit_begin.at(run.end) - first;
  });
  all["samples"] = n;
  all["tokens"] = tokens;
  all["units"] = u;
  all["samples_done"] = n - pending_samples;
  all["tokens_done"] = tokens - columns.rows_of(pending);
  all["units_done"] = u - pending.size();
}

// Bytes of the strings of any length, by their descriptors; strings not yet written have length 0.
std::uint64_t text_bytes(const ResultsReader& file, const PlacedColumn& column) {
  std::uint64_t sum = 0;
  if (column.is_packed) {
    file.for_each_text(column.spec.path, {0, column.spec.num_rows},
                       [&](std::uint64_t, std::string_view text) { sum += text.size(); });
    return sum;
  }
  file.columns().for_each_piece(column, {0, column.spec.num_rows},
                                [&](std::uint64_t, std::span<const std::byte> bytes) {
                                  for (std::size_t at = 0; at < bytes.size(); at += column.row_bytes()) {
                                    std::uint32_t length;
                                    std::memcpy(&length, bytes.data() + at, sizeof length);
                                    sum += length;
                                  }
                                });
  return sum;
}

ordered_json describe_column(const ResultsReader& file, const PlacedColumn& column) {
  ordered_json shape = {column.spec.num_rows};
  if (column.spec.width > 0 && column.spec.type != ColumnType::kUtf8) shape.push_back(column.spec.width);
  ordered_json entry = {{"path", column.spec.path}, {"type", type_name(column.spec.type)}, {"shape", shape}};
  if (column.spec.type == ColumnType::kUtf8) entry["string_bytes"] = column.spec.width;
  entry["bytes"] = column.num_bytes();
  if (column.spec.type == ColumnType::kText) entry["text_bytes"] = text_bytes(file, column);
  if (column.is_packed) {
    entry["packed"] = true;
  } else {
    entry["file_offset"] = column.offset;
  }
  if (!column.spec.units.empty()) entry["units"] = column.spec.units;
  entry["comment"] = column.spec.comment;
  return entry;
}

ordered_json describe(const ResultsReader& file) {
  ordered_json all;
  all["path"] = file.path();
  all["state"] = file.complete() ? "complete" : "partial";
  all["file_bytes"] = file.columns().file().num_bytes();
  add_progress(file, all);
  ordered_json attributes = ordered_json::object();
  for (const auto& [name, value] : file.attributes()) {
    std::visit([&, key = name](const auto& v) { attributes[key] = v; }, value);
  }
  all["attributes"] = std::move(attributes);
  ordered_json datasets = ordered_json::array();
  for (const PlacedColumn& column : file.columns().all()) datasets.push_back(describe_column(file, column));
  all["datasets"] = std::move(datasets);
  return all;
}

std::string dataset_lines(const ordered_json& datasets) {
  std::string text = fmt::format("  {:<26} {:<9} {:<16} {:>10}  {}\n", "dataset", "type", "shape", "size", "comment");
  for (const ordered_json& entry : datasets) {
    std::string type = entry["type"], shape;
    if (entry.contains("string_bytes")) type += "[" + entry["string_bytes"].dump() + "]";
    for (const ordered_json& extent : entry["shape"]) shape += (shape.empty() ? "" : " x ") + extent.dump();
    const std::string units = entry.contains("units") ? ", " + entry["units"].get<std::string>() : "";
    text += fmt::format("  {:<26} {:<9} {:<16} {:>10}  {}\n", printable(entry["path"].get<std::string>()), type, shape,
                        format_bytes(entry["bytes"].get<std::uint64_t>() + entry.value("text_bytes", std::uint64_t{0})),
                        printable(entry["comment"].get<std::string>() + units, 400));
  }
  return text;
}

// The experiment, line by line and escaped, so that no control character reaches the terminal.
std::string experiment_lines(const std::string& yaml) {
  std::string text = "experiment\n";
  for (std::size_t begin = 0; begin < yaml.size();) {
    const std::size_t end = std::min(yaml.find('\n', begin), yaml.size());
    text += "  " + printable(std::string_view(yaml).substr(begin, end - begin), 400) + "\n";
    begin = end + 1;
  }
  return text;
}

std::string as_text(const ordered_json& all) {
  const auto number = [&](const char* name) { return all[name].get<std::uint64_t>(); };
  std::string text = fmt::format("{}: {}, {} in all\n", printable(all["path"].get<std::string>(), 4096),
                                 all["state"] == "complete" ? "complete" : "partial, not all units are committed",
                                 format_bytes(number("file_bytes")));
  for (const char* name : {"units", "samples", "tokens"}) {
    text += fmt::format("  {:<18} {} of {}\n", name, number((std::string(name) + "_done").c_str()), number(name));
  }
  text += "attributes\n";
  const ordered_json& attributes = all["attributes"];
  for (const auto& [name, value] : attributes.items()) {
    if (name == "experiment" || name == "columns") continue;
    text += fmt::format("  {:<18} {}\n", printable(name),
                        value.is_string() ? printable(value.get<std::string>()) : value.dump());
  }
  text += "datasets\n" + dataset_lines(all["datasets"]);
  if (attributes.contains("experiment") && attributes["experiment"].is_string()) {
    text += experiment_lines(attributes["experiment"]);
  }
  return text;
}

}  // namespace

std::string describe_results(const std::string& path, bool json) {
  const ordered_json all = describe(open_foreign_results(existing_results_path(path)));
  return json ? all.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n" : as_text(all);
}

}  // namespace magister
