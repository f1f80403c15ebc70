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
  // Throws Error(kData) if the file is not a complete file of verdicts, Error(kInputOutput) if it cannot be read.
  // Local.
  explicit VerdictsFile(const std::string& path);
  ~VerdictsFile();
  VerdictsFile(VerdictsFile&&) noexcept;

  // Throws Error(kData) on all ranks if the bytes of a unit differ from the committed ones. Collective over world.
  void check(const Communicator& world) const;

  const std::string& names() const;      // root attribute `verdicts`: "yes,no"
  std::uint64_t samples_a_text() const;  // prompts and orders
  std::uint64_t num_samples() const;
  std::uint64_t num_classes() const;
  const AttributeValue* attribute(const std::string& name) const;  // of the root; null if it does not exist
  // Reads rows [first, ...) of a column as stored; data holds whole rows. Thread-safe.
  void read_rows(const std::string& path, std::uint64_t first, std::span<std::byte> data) const;

  // Consecutive samples, one entry each; class_logprob [samples, classes] in nats, NaN if a reply was read as text.
  struct Block {
    std::vector<std::int32_t> verdict;
    std::vector<float> class_logprob;
    std::vector<std::uint8_t> parse, order;
  };
  // Samples [first, first + count). Throws Error(kData) if the bytes of a unit differ from the committed ones.
  // Thread-safe.
  Block read(std::uint64_t first, std::uint64_t count) const;

 private:
  struct Columns;
  std::unique_ptr<Columns> columns_;
};

}  // namespace magister
