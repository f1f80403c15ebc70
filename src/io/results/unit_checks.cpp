// Nothing is changed before all ranks have read their share: if one rank refuses, the file stays as it was.
#include "io/results/unit_checks.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "magister/core/error.h"
#include "magister/core/fail_point.h"
#include "magister/core/log.h"
#include "magister/io/agreed_errors.h"

namespace magister {
namespace {

// Calls visit(consecutive units, true if they are pending or false if committed) in order.
template <typename Visit>
void for_each_stretch(IndexRange units, const UnitSet& pending, const Visit& visit) {
  std::uint64_t next = units.begin;
  pending.for_each_run([&](IndexRange run) {
    const std::uint64_t begin = std::clamp(run.begin, next, units.end), end = std::clamp(run.end, next, units.end);
    if (begin == end) return;
    if (next < begin) visit(IndexRange{next, begin}, false);
    visit(IndexRange{begin, end}, true);
    next = end;
  });
  if (next < units.end) visit(IndexRange{next, units.end}, false);
}

// Calls visit(unit, found, stored) for every unit of the range whose checksum is not the stored one, in order.
template <typename Visit>
void for_each_difference(const ResultsColumns& columns, IndexRange units, UnitPart part, const char* stored_in,
                         const Visit& visit) {
  const auto stored = columns.rows<std::uint32_t>(stored_in, units.begin, units.size());
  const std::vector<std::uint32_t> found = unit_checksums(columns, borders_of(columns, units), part);
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i] != stored[i]) visit(units.begin + i, found[i], stored[i]);
  }
}

void require_inputs(const ResultsColumns& columns, IndexRange units) {
  for_each_difference(columns, units, UnitPart::kInputs, kInputChecksums,
                      [&](std::uint64_t unit, std::uint32_t found, std::uint32_t stored) {
                        fail(
                            ExitCode::kData,
                            "{}: what unit {} is computed from (keys, places, tokens) has crc32c {:08x}, not {:08x} as "
                            "when it was planned (the results would be those of other tokens, and nothing is "
                            "overwritten); start over with --fresh, which puts the file aside, and look at the disk",
                            printable(columns.path()), unit, found, stored);
                      });
}

// Collects committed units whose bytes changed. They can be computed again only from inputs that are verified to be
// those of the plan.
void add_changed(const ResultsColumns& columns, IndexRange units, std::vector<std::uint64_t>& changed) {
  for_each_difference(
      columns, units, UnitPart::kAll, "/commit/crc32c",
      [&](std::uint64_t unit, std::uint32_t found, std::uint32_t stored) {
        MAGISTER_CHECK(columns.find(kInputChecksums) != nullptr, ExitCode::kData,
                       "{}: the bytes of unit {} have crc32c {:08x}, not {:08x} as when it was committed (whether its "
                       "tokens changed is not known: the file has no {}); start over with --fresh, or remove the file "
                       "where `magister merge` has made it",
                       printable(columns.path()), unit, found, stored, kInputChecksums);
        require_inputs(columns, {unit, unit + 1});
        changed.push_back(unit);
      });
}

std::vector<std::uint64_t> changed_in_share(const Communicator& world, const ResultsColumns& columns,
                                            const UnitSet& pending, const std::function<bool()>& stop) {
  std::vector<std::uint64_t> changed;
  for_each_stretch(share_of(world, columns.num_units()), pending, [&](IndexRange units, bool to_do) {
    for_each_batch(columns, units, [&](IndexRange batch) {
      if (stop && stop()) throw Error(ExitCode::kStopped, "stopped");
      if (!to_do) return add_changed(columns, batch, changed);
      if (columns.find(kInputChecksums) != nullptr) require_inputs(columns, batch);
    });
  });
  return changed;
}

// The units of all ranks, ascending because the shares are.
std::vector<std::uint64_t> of_all_ranks(const Communicator& world, const std::vector<std::uint64_t>& own) {
  std::vector<std::uint64_t> all;
  const std::string bytes(reinterpret_cast<const char*>(own.data()), own.size() * sizeof own[0]);
  for (const std::string& part : world.all_gather(bytes)) {
    std::vector<std::uint64_t> units(part.size() / sizeof own[0]);
    if (!units.empty()) std::memcpy(units.data(), part.data(), part.size());
    all.insert(all.end(), units.begin(), units.end());
  }
  return all;
}

std::string listed(const std::vector<std::uint64_t>& units) {
  constexpr std::size_t kNamed = 20;
  std::string text;
  for (std::size_t i = 0; i < std::min(kNamed, units.size()); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : ", ", units[i]);
  return units.size() <= kNamed ? text : fmt::format("{} and {} more", text, units.size() - kNamed);
}

}  // namespace

IndexRange share_of(const Communicator& world, std::uint64_t num_units) {
  const auto border = [&](int rank) {
    return static_cast<std::uint64_t>(static_cast<unsigned __int128>(num_units) * static_cast<unsigned>(rank) /
                                      static_cast<unsigned>(world.size()));
  };
  return {border(world.rank()), border(world.rank() + 1)};
}

void write_input_checksums(const Communicator& world, ResultsColumns& columns) {
  if (columns.find(kInputChecksums) == nullptr) return;
  for_each_batch(columns, share_of(world, columns.num_units()), [&](IndexRange batch) {
    const std::vector<std::uint32_t> checksums = unit_checksums(columns, borders_of(columns, batch), UnitPart::kInputs);
    columns.write(kInputChecksums, batch.begin, std::as_bytes(std::span(checksums)));
  });
}

UnitSet still_to_do(const Communicator& world, ResultsColumns& columns, const UnitSet& pending,
                    const std::function<bool()>& stop) {
  std::vector<std::uint64_t> changed;
  run_agreed(world, [&] { changed = changed_in_share(world, columns, pending, stop); });
  changed = of_all_ranks(world, changed);
  if (changed.empty()) return pending;
  log_warning(
      "{}: the bytes of unit{} {} are not those that were committed (a disk that errs, or somebody changed the file); "
      "{} "
      "made again",
      columns.path(), changed.size() == 1 ? "" : "s", listed(changed), changed.size() == 1 ? "it is" : "they are");
  if (world.rank() == 0) {
    const std::uint8_t no = 0;
    for (const std::uint64_t unit : changed) columns.write("/commit/done", unit, std::as_bytes(std::span(&no, 1)));
    columns.sync_data();
    fail_point("results.resume.flags_taken_back");
  }
  world.barrier();
  auto next = changed.begin();
  return {columns.num_units(), [&](std::uint64_t first, std::span<std::uint8_t> flags) {
            std::fill(flags.begin(), flags.end(), 1);
            pending.for_each_run([&](IndexRange run) {
              const std::uint64_t end = first + flags.size(), from = std::clamp(run.begin, first, end);
              for (std::uint64_t unit = from; unit < std::clamp(run.end, first, end); ++unit) flags[unit - first] = 0;
            });
            for (; next != changed.end() && *next < first + flags.size(); ++next) flags[*next - first] = 0;
          }};
}

}  // namespace magister
