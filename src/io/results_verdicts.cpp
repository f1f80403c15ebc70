// All verdicts at once: 20 bytes a sample and more, which a task of ten million has room for.
#include "magister/io/results_verdicts.h"

#include "io/results_reader.h"
#include "magister/core/error.h"

namespace magister {

ResultsVerdicts ResultsVerdicts::read(const std::string& path) {
  const ResultsReader file(path);
  MAGISTER_CHECK(file.complete() && file.text("format") == "magister.judge", ExitCode::kData,
                 "{}: is no complete file of verdicts (there is nothing to combine); run its judge task first", printable(path));
  const ResultsColumns& columns = file.columns();
  const std::uint64_t n = columns.num_samples();
  file.column("/judge/verdict", ColumnType::kI32);
  file.column("/judge/parse", ColumnType::kU8);
  file.column("/judge/order", ColumnType::kU8);
  const PlacedColumn& logprobs = file.column("/judge/class_logprob", ColumnType::kF32);
  ResultsVerdicts all;
  all.names = file.text("verdicts");
  all.samples_a_text = file.number("samples_a_text");
  all.source_index = columns.rows<std::uint64_t>("/samples/source_index", 0, n);
  all.verdict = columns.rows<std::int32_t>("/judge/verdict", 0, n);
  all.parse = columns.rows<std::uint8_t>("/judge/parse", 0, n);
  all.order = columns.rows<std::uint8_t>("/judge/order", 0, n);
  all.class_logprob.resize(n * logprobs.spec.width);
  columns.read(logprobs, 0, std::as_writable_bytes(std::span(all.class_logprob)));
  return all;
}

}  // namespace magister
