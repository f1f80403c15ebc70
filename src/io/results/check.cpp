// `check` verifies everything that a reader would otherwise have to trust. First the structure (without it nothing else
// can be read), then unit by unit the bytes against their checksum and the rows against the rules.
#include <algorithm>

#include "io/results/columns.h"
#include "io/results/foreign.h"
#include "magister/core/error.h"
#include "magister/io/results/schema.h"
#include "magister/io/results/tools.h"

namespace magister {
namespace {

void check_attributes(const ResultsReader& file, FaultList& faults) {
  const char* const texts[] = {"format",       "software",         "software_version", "experiment", "config_sha256",
                               "model_sha256", "tokenizer_sha256", "dataset_sha256",   "plan_sha256"};
  const char* const numbers[] = {"format_version", "num_samples", "num_tokens"};
  for (const char* name : texts) {
    const AttributeValue* value = find_attribute(file.attributes(), name);
    if (value == nullptr || !std::holds_alternative<std::string>(*value))
      faults.add("attribute {} is missing or not a text", name);
  }
  for (const char* name : numbers) {
    const AttributeValue* value = find_attribute(file.attributes(), name);
    if (value == nullptr || !std::holds_alternative<std::uint64_t>(*value)) {
      faults.add("attribute {} is missing or not a number", name);
    }
  }
  const AttributeValue* complete = find_attribute(file.attributes(), "complete");
  if (complete == nullptr ||
      (*complete != AttributeValue(std::uint8_t{0}) && *complete != AttributeValue(std::uint8_t{1}))) {
    faults.add("attribute complete is neither 0 nor 1");
  }
}

// Returns the number of committed units. rules: null if rows cannot be checked.
std::uint64_t check_units(const ResultsReader& file, const ResultsSchema* rules, FaultList& faults) {
  const ResultsColumns& columns = file.columns();
  const UnitSet pending = columns.pending_units();
  for (std::uint64_t index = 0, next = pending.next(0); index < columns.num_units(); ++index) {
    if (index == next) {
      next = pending.next(index + 1);
      continue;
    }
    const Unit unit = columns.unit(index);
    const std::uint32_t stored = columns.rows<std::uint32_t>("/commit/crc32c", index, 1)[0];
    std::uint32_t found = 0;
    try {
      found = columns.checksum(unit);
    } catch (const Error& error) {
      if (error.code() != ExitCode::kData) throw;
      faults.add("unit {}: {}", index, error.what());
      continue;
    }
    if (stored != found) {
      faults.add(
          "unit {} (samples {} to {}, rows {} to {}): its bytes have crc32c {:08x}, not {:08x} as when it was "
          "committed",
          index, unit.samples.begin, unit.samples.end, unit.rows.begin, unit.rows.end, found, stored);
    }
    if (rules != nullptr && rules->rows != nullptr) rules->rows(file, unit, faults);
  }
  return columns.num_units() - pending.size();
}

// Checks the inputs of all units, done or not, if the file has their checksums.
void check_inputs(const ResultsColumns& columns, FaultList& faults) {
  if (columns.find(kInputChecksums) == nullptr) return;
  for_each_batch(columns, {0, columns.num_units()}, [&](IndexRange units) {
    const auto stored = columns.rows<std::uint32_t>(kInputChecksums, units.begin, units.size());
    const std::vector<std::uint32_t> found = unit_checksums(columns, borders_of(columns, units), UnitPart::kInputs);
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (found[i] == stored[i]) continue;
      faults.add("unit {}: its keys, places or tokens have crc32c {:08x}, not {:08x} as when it was planned",
                 units.begin + i, found[i], stored[i]);
    }
  });
}

}  // namespace

ResultsCheck check_results(const std::string& path, std::span<const ResultsSchema> schemas) {
  const ResultsReader file = open_foreign_results(existing_results_path(path));
  FaultList faults;
  check_attributes(file, faults);
  for (const std::string& fault : structure_faults(file.columns(), file.attributes())) faults.add("{}", fault);
  const AttributeValue* format = find_attribute(file.attributes(), "format");
  const ResultsSchema* rules = nullptr;
  std::string known;
  for (const ResultsSchema& schema : schemas) {
    known += (known.empty() ? "" : ", ") + std::string(schema.format);
    if (format != nullptr && *format == AttributeValue(std::string(schema.format))) rules = &schema;
  }
  if (rules == nullptr) faults.add("this program does not know the format ({})", known);
  const AttributeValue* version = find_attribute(file.attributes(), "format_version");
  const auto* number = version == nullptr ? nullptr : std::get_if<std::uint64_t>(version);
  if (rules != nullptr && number != nullptr && (*number == 0 || *number > rules->newest_version)) {
    faults.add("format_version is {}; this program knows 1 to {} of {}", *number, rules->newest_version, rules->format);
  }
  // With wrong offsets every unit would look damaged, so stop here.
  if (rules == nullptr || faults.count() > 0) return {faults.take(), file.complete()};
  if (rules->columns != nullptr && !rules->columns(file, faults)) rules = nullptr;
  if (rules != nullptr && rules->samples != nullptr) rules->samples(file, faults);
  check_inputs(file.columns(), faults);
  const std::uint64_t num_units = file.columns().num_units(), num_done = check_units(file, rules, faults);
  if (file.complete() && num_done != num_units)
    faults.add("complete is 1, but {} of {} units are committed", num_done, num_units);
  return {faults.take(), file.complete(), num_units, num_done};
}

}  // namespace magister
