// VerdictsFile: the verdicts of a complete `judge` file, for a task that combines them with its own. They stay in the
// file and are read a few at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "magister/io/results/results_file.h"
#include "magister/parallel/communicator.h"

namespace magister {

class VerdictsFile {
 public:
  // Throws Error(kData) for what is no complete file of verdicts, Error(kInputOutput) for what is no file. Local.
  explicit VerdictsFile(const std::string& path);
  ~VerdictsFile();
  VerdictsFile(VerdictsFile&&) noexcept;

  // Throws Error(kData) on all ranks where the bytes of a unit are not those that were committed. Collective over world.
  void check(const Communicator& world) const;

  const std::string& names() const;      // root attribute `verdicts`: "yes,no"
  std::uint64_t samples_a_text() const;  // prompts and orders
  std::uint64_t num_samples() const;
  std::uint64_t num_classes() const;
  const AttributeValue* attribute(const std::string& name) const;  // of the root; null: there is none of that name
  // Rows [first, ...) of a column as they stand in the file; data is whole rows. Any thread.
  void read_rows(const std::string& path, std::uint64_t first, std::span<std::byte> data) const;

  // Some samples in order, one entry each; class_logprob [samples, classes] in nats, NaN where a reply was read as text.
  struct Block {
    std::vector<std::int32_t> verdict;
    std::vector<float> class_logprob;
    std::vector<std::uint8_t> parse, order;
  };
  // Samples [first, first + count). Error(kData) where the bytes of a unit are not those that were committed. Any thread.
  Block read(std::uint64_t first, std::uint64_t count) const;

 private:
  struct Columns;
  std::unique_ptr<Columns> columns_;
};

}  // namespace magister
