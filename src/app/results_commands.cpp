// info, check, export, merge: what io/results_tools does, on rank 0, with the manners of a command.
// check prints its findings as the result of the command and says in one message that there are some.
#include "app/commands.h"
#include "app/on_rank_zero.h"
#include "magister/io/results/tools.h"

namespace magister {

ExitCode info_command(Invocation& call) {
  return on_rank_zero(call.world, [&] {
    const bool json = call.line.has("--json");
    std::string text = describe_results(call.line.positional("RESULTS.h5"), json);
    if (!json) text = terminal_safe(text);
    if (!text.ends_with('\n')) text += '\n';
    say(text);
    return ExitCode::kDone;
  });
}

ExitCode check_command(Invocation& call) {
  return on_rank_zero(call.world, [&] {
    const std::string path = call.line.positional("RESULTS.h5");
    const std::vector<std::string> faults = check_results(path, schemas_of(call.kinds));
    for (const std::string& fault : faults) say(terminal_safe(fault) + "\n");
    if (!faults.empty()) {
      flush_standard_output();
      fail(ExitCode::kData,
           "{}: the check found faults, {} lines of them (what the file says cannot be trusted); compute it "
           "again with run --fresh",
           printable(path), faults.size());
    }
    say(printable(path, path.size() * 4) + ": all is well\n");
    return ExitCode::kDone;
  });
}

ExitCode export_command(Invocation& call) {
  return on_rank_zero(call.world, [&] {
    const std::string format = call.line.option("--to");
    constexpr const char* kKnown = "jsonl, csv, parquet, padded-hdf5";
    if (format.empty())
      fail(ExitCode::kUsage, "--to is missing (the format is not guessed; known: {}); add --to jsonl", kKnown);
    const std::string results = call.line.positional("RESULTS.h5"), out = call.line.option("--out", "-");
    if (format == "jsonl" || format == "csv") {
      export_text(results, format == "csv" ? TextExport::kCsv : TextExport::kJsonl, out);
      return ExitCode::kDone;
    }
    if (format != "parquet" && format != "padded-hdf5") {
      fail(ExitCode::kUsage, "--to {} is not possible (known: {}); write one of them", printable(format, 40), kKnown);
    }
    if (out == "-") {
      fail(ExitCode::kUsage, "--to {} has no --out (its bytes are no text for a terminal); name a file", format);
    }
    format == "parquet" ? export_parquet(results, out) : export_padded(results, out);
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
    merge_results(out, parts);
    say(fmt::format("{}: {} parts merged\n", printable(out, out.size() * 4), parts.size()));
    return ExitCode::kDone;
  });
}

}  // namespace magister
