// Each rank reads a part, and the error of one becomes everyone's: if one rank alone threw, the others would wait for
// it.
#include "magister/train/first_weights.h"

#include "magister/io/agreed_errors.h"

namespace magister {

void read_first_weights(const ParameterLayout& layout, const TensorFile& file, HostWeights& weights,
                        const Communicator& host, const NewHead& new_head, ThreadPool& pool) {
  const int part = weights.is_shared() ? host.rank() : 0, parts = weights.is_shared() ? host.size() : 1;
  // All ranks meet here: a slower one would write the first weights over those of a state that others read next.
  run_agreed(host, [&] { layout.read(file, weights.tensor(), new_head, &pool, part, parts); });
}

}  // namespace magister
