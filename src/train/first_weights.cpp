// Each rank reads a part, and the error of one becomes everyone's: if one rank alone threw, the others would wait for
// it.
#include "magister/train/first_weights.h"

#include <exception>
#include <string>

#include "magister/core/error.h"

namespace magister {

void read_first_weights(const ParameterLayout& layout, const TensorFile& file, HostWeights& weights,
                        const Communicator& host, const NewHead& new_head, ThreadPool& pool) {
  const int part = weights.is_shared() ? host.rank() : 0, parts = weights.is_shared() ? host.size() : 1;
  std::string problem;
  ExitCode code = ExitCode::kDone;
  try {
    layout.read(file, weights.tensor(), new_head, &pool, part, parts);
  } catch (const Error& error) {
    problem = error.what();
    code = error.code();
  }
  // All ranks meet here: a slower one would write the first weights over those of a state that others read next.
  const std::vector<std::string> problems = host.all_gather(problem);
  const std::vector<std::uint64_t> codes = host.all_gather(static_cast<std::uint64_t>(code));
  for (std::size_t rank = 0; rank < codes.size(); ++rank) {
    if (codes[rank] != static_cast<std::uint64_t>(ExitCode::kDone))
      throw Error(static_cast<ExitCode>(codes[rank]), problems[rank]);
  }
}

}  // namespace magister
