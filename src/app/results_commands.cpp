// info, check, export, merge: the commands for the functions of io/results/tools.h, run on rank 0.
// check prints its findings as the command's output, and one error message says that there are some.
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "app/commands.h"
#include "app/on_rank_zero.h"
#include "magister/core/units_of_measure.h"
#include "magister/io/results/tools.h"

namespace magister {

namespace {

// Refuses a run's folder and lists its files, since these commands read a single file.
std::string results_file(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return path;
  constexpr std::size_t kShown = 8;
  std::vector<std::string> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, ignored)) {
    if (entry.path().extension() == ".h5" && entry.is_regular_file(ignored))
      files.push_back(printable(entry.path().string()));
  }
  std::sort(files.begin(), files.end());
  const bool cut = files.size() > kShown;
  if (cut) files.resize(kShown);
  fail(ExitCode::kInputOutput, "{}: is a folder{} (this command looks at one results file); name {}", printable(path),
       files.empty() ? " without finished results" : "",
       files.empty()
           ? "a results file, or look at a run with `magister status`"
           : fmt::format("{}{}{}", files.size() > 1 ? "one of " : "", fmt::join(files, ", "), cut ? ", ..." : ""));
}

}  // namespace

ExitCode info_command(Invocation& call) {
  return on_rank_zero(call.world, [&] {
    const bool json = call.line.has("--json");
    std::string text = describe_results(results_file(call.line.positional("RESULTS.h5")), json);
    if (!json) text = terminal_safe(text);
    if (!text.ends_with('\n')) text += '\n';
    say(text);
    return ExitCode::kDone;
  });
}

namespace {

void refuse_unless_whole(const std::string& path, const ResultsCheck& check) {
  if (check.whole()) return;
  const std::string faults = fmt::format("the check found faults, {} lines of them", check.faults.size());
  MAGISTER_CHECK(!check.complete, ExitCode::kData,
                 "{}: {} (its content cannot be trusted); compute it again with run --fresh", printable(path), faults);
  // A file that a run cannot continue is refused by that run with its own message.
  const bool is_known = check.units > 0 || check.faults.empty();
  fail(ExitCode::kData, "{}: is not finished{}, and {}; run the command that made it again: it computes the rest",
       printable(path),
       is_known ? fmt::format(", {} of {} units are committed", check.units_done, check.units) : std::string(),
       check.faults.empty() ? "what is there is sound (rows are missing)" : faults + " in what is there");
}

}  // namespace

ExitCode check_command(Invocation& call) {
  return on_rank_zero(call.world, [&] {
    const std::string path = results_file(call.line.positional("RESULTS.h5"));
    const ResultsCheck check = check_results(path, schemas_of(call.kinds));
    for (const std::string& fault : check.faults) say(terminal_safe(fault) + "\n");
    flush_standard_output();
    refuse_unless_whole(path, check);
    say(printable(path, path.size() * 4) + ": all is well\n");
    return ExitCode::kDone;
  });
}

ExitCode export_command(Invocation& call) {
  return on_rank_zero(call.world, [&] {
    const std::string format = call.line.option("--to");
    const std::vector<ExportFormat> formats = exports_of(call.kinds);
    std::vector<std::string_view> names;
    for (const ExportFormat& one : formats) names.emplace_back(one.name);
    const std::string known = fmt::format("{}", fmt::join(names, ", "));
    if (format.empty()) {
      fail(ExitCode::kUsage, "--to is missing (the format is not guessed; known: {}); add --to {}", known,
           names.front());
    }
    const std::string results = results_file(call.line.positional("RESULTS.h5")), out = call.line.option("--out", "-");
    const ExportFormat* found = find_format(formats, format);
    if (found == nullptr) {
      fail(ExitCode::kUsage, "--to {} is not possible (known: {}); write one of them", printable(format, 40), known);
    }
    if (out == "-" && !found->is_text) {
      fail(ExitCode::kUsage, "--to {} has no --out (its bytes are no text for a terminal); name a file", format);
    }
    const ResultsReader file = open_complete_results(results);
    const TaskKind* const kind = kind_of(call.kinds, file);
    // A format that only other kinds offer refuses the file itself.
    if (const ExportFormat* own = kind == nullptr ? nullptr : find_format(kind->exports, format)) found = own;
    const bool described = kind != nullptr && kind->schema != nullptr;
    found->write(file, described ? kind->schema->exported : ExportedColumns(), out);
    return ExitCode::kDone;
  });
}

ExitCode merge_command(Invocation& call) {
  return on_rank_zero(call.world, [&] {
    const std::string out = call.line.positional("OUT.h5");
    const std::vector<std::string>& parts = call.line.rest("PART.h5");
    if (parts.empty()) {
      fail(ExitCode::kUsage, "no PART.h5 (there is nothing to merge into {}); name the files of the slices",
           printable(out));
    }
    for (const std::string& part : parts) results_file(part);
    std::error_code ignored;
    MAGISTER_CHECK(!std::filesystem::is_directory(out, ignored), ExitCode::kUsage,
                   "{}: is a folder (the parts become one file); name that file, OUT.h5, before the parts",
                   printable(out));
    merge_results(out, parts);
    say(fmt::format("{}: {} merged\n", printable(out, out.size() * 4), format_count(parts.size(), "part")));
    return ExitCode::kDone;
  });
}

}  // namespace magister
