// Dataset: records of text or of token ids from files: JSONL, JSON, CSV, plain text (each also compressed), Parquet,
// Arrow, and arrays in HDF5 files. Several files (a list, a glob, a folder) are joined in order or mixed by weight.
// Every rank reads its own part; only the current line or some rows of a table are in memory. Errors name bad records
// by file:line, or by row group and row.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "magister/core/types.h"
#include "magister/parallel/communicator.h"

namespace magister {

// Files mixed by weight instead of joined: each draw names a source, and the record is that source's next one. Source:
// Hugging Face `datasets`, interleave_datasets; the draws are the same.
struct DatasetMix {
  enum class Stop {
    kFirstExhausted,   // at the last record of a source; the others' remaining records are left out
    kAllExhausted,     // when every source has ended at least once; sources that end earlier begin again
    kAllExhaustedOnce  // as before, but a source that has ended is not drawn again: every record once
  };
  struct Source {
    std::size_t num_paths = 0;  // the next num_paths entries of DatasetConfig::paths are its files
    double weight = 0;          // above 0; weights need not add up to 1
  };
  std::vector<Source> sources;
  std::uint64_t seed = 0;
  Stop stop = Stop::kFirstExhausted;
};

struct DatasetConfig {
  std::vector<std::string> paths;  // files, globs, folders or names of the Hugging Face hub's cache, in order
  std::optional<DatasetMix> mix;   // mixes these paths; nullopt: one after the other
  std::string config;  // the configuration of a folder that has several; empty: the only one, or README.md's default
  std::string split;   // the split of a folder that has several; empty: "train"
  // Used if tokens_field is empty; this and the other fields are names or paths (field_path.h).
  std::string text_field = "text";
  // True: the text is the whole line, one checked JSON object, for tasks that read several fields. text_field and
  // tokens_field are then not used.
  bool whole_record = false;
  std::string messages_field;  // with whole_record: the field of the chat
  std::string tools_field;     // with whole_record: the field of the tools that the chat may call; empty: none
  // True: a special token's text in a message becomes that token; else it stays text.
  bool special_tokens_in_messages = false;
  // With whole_record: the fields of pairs of answers; prompt and margin may be empty.
  std::string prompt_field, chosen_field, rejected_field, margin_field;
  std::string tokens_field;  // ids instead of text
  // For HDF5 files of other programs, whose tokens_field names an array of ids: the array of each row's length, or the
  // array of the first id of each record and, at its end, the number of ids. Empty: none.
  std::string lengths_field, offsets_field;
  std::string key_field;  // empty: the key is the record's index
  // The earlier task whose results are the only file; empty: paths name files.
  std::string task;
  // True: a sample of a results file is a record with fields: its texts, its numbers and its own record's fields
  // (results_fields.h). False: a record of token ids.
  bool results_fields = false;
  // With results_fields: a record counts if each of these fields fits: "yes", "!= yes", ">= 0.5" or "<= 0.5".
  std::vector<std::pair<std::string, std::string>> keep;
  // Records that the task itself makes, a JSON object each; then there are no files.
  std::vector<std::string> lines;
  std::optional<std::uint64_t> limit;
  std::uint64_t slice_index = 0;  // slice i/n: records [n_records*i/n, n_records*(i+1)/n)
  std::uint64_t slice_count = 1;
  std::uint64_t max_line_bytes = 256ull << 20;
};

struct Record {
  // Position in the whole data set, before the slice; in a mixed data set: in the mixed order.
  std::uint64_t source_index = 0;
  std::string key;
  std::string text;  // valid UTF-8, empty if tokens are given; with whole_record the whole line
  std::shared_ptr<const nlohmann::ordered_json> fields;  // with whole_record: that line, parsed once (record_json.h)
  std::vector<TokenId> tokens;
  std::string where;  // "file:line" or "file: row group 0, row 17" for messages
};

class Dataset {
 public:
  // Expands globs, checks the files and counts the records: each rank counts its byte ranges, or indexes whole files.
  // Memory is bounded: one entry per block of 4 MiB, per row group or per record batch. Collective over world.
  // poll returns true if the job should stop; it is asked once a block, and then every rank throws Error(kStopped).
  static Dataset open(const Communicator& world, const DatasetConfig& config, const std::function<bool()>& poll = {});
  Dataset(Dataset&&) noexcept;
  ~Dataset();

  std::uint64_t num_source_records() const;  // of the whole data set after limit, before the slice
  IndexRange records() const;                // this run's slice of it
  // Formats of the files, "jsonl", "csv.gz", judged by their names. They matter because the same bytes read in another
  // format are other records.
  std::string formats() const;
  // sha256 of the data: of the file's bytes for one file (equal to sha256sum), of "sha256  file name\n" lines for
  // several; for a mix the lines also contain each file's source and how the sources are mixed. open() computed it.
  // Local.
  const std::string& sha256() const;

  // Calls visit for records [range.begin, range.end) in order. Local: each rank reads its own part. visit may throw;
  // bad lines throw Error(kData) with file:line. Returns early when poll, asked before every record, returns true.
  void for_each(IndexRange range, const std::function<void(Record&&)>& visit,
                const std::function<bool()>& poll = {}) const;

 private:
  struct Index;
  explicit Dataset(std::unique_ptr<Index> index);
  std::unique_ptr<Index> index_;
};

}  // namespace magister
