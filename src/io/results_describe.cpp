// `info`: what stands in a results file, for people and for programs.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "io/results_reader.h"
#include "magister/core/error.h"
#include "magister/io/results_tools.h"

namespace magister {
namespace {

using nlohmann::ordered_json;

const char* type_name(ColumnType type) {
  switch (type) {
    case ColumnType::kU8: return "u8";
    case ColumnType::kI32: return "i32";
    case ColumnType::kU32: return "u32";
    case ColumnType::kU64: return "u64";
    case ColumnType::kF16: return "f16";
    case ColumnType::kF32: return "f32";
    case ColumnType::kUtf8: return "utf-8";
  }
  return "?";
}

ordered_json collect(const ResultsReader& file) {
  ordered_json all;
  all["path"] = file.path();
  const auto done = file.read<std::uint8_t>("/commit/done", 0, file.num_units());
  all["units"] = file.num_units();
  all["units_done"] = std::count(done.begin(), done.end(), 1);
  ordered_json attributes = ordered_json::object();
  for (const auto& [name, value] : file.attributes()) {
    std::visit([&, key = name](const auto& v) { attributes[key] = v; }, value);
  }
  all["attributes"] = attributes;
  ordered_json datasets = ordered_json::array();
  for (const PlacedColumn& column : file.columns()) {
    ordered_json shape = {column.spec.num_rows};
    if (column.spec.width > 0 && column.spec.type != ColumnType::kUtf8) shape.push_back(column.spec.width);
    ordered_json entry = {{"path", column.spec.path}, {"type", type_name(column.spec.type)}, {"shape", shape},
                          {"bytes", column.num_bytes()}, {"comment", column.spec.comment}};
    if (!column.spec.units.empty()) entry["units"] = column.spec.units;
    datasets.push_back(std::move(entry));
  }
  all["datasets"] = datasets;
  return all;
}

}  // namespace

std::string describe_results(const std::string& path, bool json) {
  const ResultsReader file(path);
  const ordered_json all = collect(file);
  const auto replace = ordered_json::error_handler_t::replace;
  if (json) return all.dump(-1, ' ', false, replace);
  std::string text = fmt::format("{}: {}, {} of {} units\n", printable(path), file.complete() ? "complete" : "not complete",
                                 all["units_done"].get<std::uint64_t>(), all["units"].get<std::uint64_t>());
  for (const auto& [name, value] : all["attributes"].items()) {
    if (name == "experiment" || name == "columns") continue;
    text += fmt::format("  {:<18} {}\n", name, value.is_string() ? printable(value.get<std::string>()) : value.dump());
  }
  for (const auto& entry : all["datasets"]) {
    text += fmt::format("  {:<26} {:<6} {:<16} {}{}\n", entry["path"].get<std::string>(), entry["type"].get<std::string>(),
                        entry["shape"].dump(), entry["comment"].get<std::string>(),
                        entry.contains("units") ? " [" + entry["units"].get<std::string>() + "]" : "");
  }
  return text;
}

}  // namespace magister
