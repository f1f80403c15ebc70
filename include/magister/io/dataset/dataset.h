// Dataset: records of text (or of token ids) from files, of which a list, a glob or a folder is joined in order, or by weights: JSONL, JSON, CSV,
// plain text, each also compressed, Parquet, Arrow and arrays of HDF5 files. Every rank reads its own part; nothing is held but the current line or
// some rows of a table. Bad records are named file:line, or by row group and row.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "magister/core/types.h"
#include "magister/parallel/communicator.h"

namespace magister {

// Files drawn by weight, in place of one after the other: each record comes from the source that the next draw names, and is that source's
// next one. Source: Hugging Face `datasets`, interleave_datasets, whose draws these are.
struct DatasetMix {
  enum class Stop {
    kFirstExhausted,   // at the last record of a source; the others' further records are left out
    kAllExhausted,     // once every source has come to its end; others begin again
    kAllExhaustedOnce  // likewise, but what has come to its end is drawn no more: every record once
  };
  struct Source {
    std::size_t num_paths = 0;  // its files are these many of DatasetConfig::paths, in order
    double weight = 0;          // above 0; any sum
  };
  std::vector<Source> sources;
  std::uint64_t seed = 0;
  Stop stop = Stop::kFirstExhausted;
};

struct DatasetConfig {
  std::vector<std::string> paths;  // files, globs, folders or names of the Hugging Face hub's cache, in order
  std::optional<DatasetMix> mix;   // of these paths; none: one after the other
  std::string config;  // of folders with several: a configuration; empty: the only one or README.md's default
  std::string split;   // of folders with several; empty: "train"
  std::string text_field =
      "text";  // used when tokens_field is empty; this and the other fields: names or paths (field_path.h)
  // The text is the whole line, one checked JSON object: for tasks that read several fields. The two above are not used.
  bool whole_record = false;
  std::string messages_field;               // with whole_record: where a task finds a chat in it
  std::string tools_field;                  // likewise the tools that the chat may call; empty: none
  bool special_tokens_in_messages = false;  // a special token written inside a message is one; else it is text
  // With whole_record: where a task finds pairs of answers; prompt and margin may be empty.
  std::string prompt_field, chosen_field, rejected_field, margin_field;
  std::string tokens_field;  // ids instead of text
  // Of HDF5 files of other programs, whose tokens_field names an array of ids: another one with each row's length, or one with where
  // each record begins, and the end of the last one; empty: none.
  std::string lengths_field, offsets_field;
  std::string key_field;  // empty: the key is the record's index
  std::optional<std::uint64_t> limit;
  std::uint64_t slice_index = 0;  // slice i/n: records [n_records*i/n, n_records*(i+1)/n)
  std::uint64_t slice_count = 1;
  std::uint64_t max_line_bytes = 256ull << 20;
};

struct Record {
  std::uint64_t source_index = 0;  // position in the whole data set (before the slice), of a mix in what is mixed
  std::string key;
  std::string text;  // valid UTF-8, unless tokens are given; the whole line with whole_record
  std::shared_ptr<const nlohmann::ordered_json> fields;  // with whole_record: that line, parsed once (record_json.h)
  std::vector<TokenId> tokens;
  std::string where;  // "file:line" or "file: row group 0, row 17" for messages
};

class Dataset {
 public:
  // Expands globs, checks the files, counts the records (each rank counts its byte ranges, or indexes whole files; memory is
  // bounded: a line count or a place per block of 4 MiB, per row group or record batch). Collective over world.
  // poll: whether the job should stop, asked a block at a time; then every rank throws Error(kStopped).
  static Dataset open(const Communicator& world, const DatasetConfig& config, const std::function<bool()>& poll = {});
  Dataset(Dataset&&) noexcept;
  ~Dataset();

  std::uint64_t num_source_records() const;  // whole data set after limit, before the slice
  IndexRange records() const;                // this run's slice of it
  // How the files are read, "jsonl", "csv.gz", by their names: the same bytes are other records as another kind.
  std::string formats() const;
  // sha256 of the data: of the file's bytes for one file (equal to sha256sum), of "sha256  file name\n" lines for
  // several; of a mix of sources also over a line with how they are mixed. Collective over the world given to open() (computed there).
  const std::string& sha256() const;

  // Calls visit for records [range.begin, range.end) in order. Local: each rank reads its own part.
  // visit may throw; bad lines throw Error(kData) with file:line. Returns early when poll, asked before every record, says so.
  void for_each(IndexRange range, const std::function<void(Record&&)>& visit,
                const std::function<bool()>& poll = {}) const;

 private:
  struct Index;
  explicit Dataset(std::unique_ptr<Index> index);
  std::unique_ptr<Index> index_;
};

}  // namespace magister
