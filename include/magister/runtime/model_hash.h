// sha256 of a model: of the file's bytes if it is one file (equal to sha256sum), else of the lines "sha256  name" of
// config.json, tokenizer.json and the tensor files, as sha256sum prints them. Ranks hash different files at the same
// time.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "magister/io/checkpoint/tensor_file.h"
#include "magister/parallel/communicator.h"
#include "magister/runtime/stop.h"

namespace magister {

// Root attribute of a training's results: model_sha256 of the folder that it wrote; for an adapter adapter_sha256.
constexpr const char* kModelFolderKey = "model_folder_sha256";
// files_sha256 of the other files in that folder (files_next_to_weights): they decide how chats are written and how
// texts end.
constexpr const char* kModelFolderFilesKey = "model_folder_files_sha256";

struct ModelHash {
  std::string whole;
  std::string base;  // without the adapter's files; empty: no adapter, or hashing ended early
};

// Hashing in the background from construction until lines(): each rank hashes its part of the files on its share of the
// host's cores.
class FilesHashing {
 public:
  // Collective over world.
  FilesHashing(const Communicator& world, std::vector<std::string> paths);
  ~FilesHashing();  // stops the hashing
  FilesHashing(const FilesHashing&) = delete;
  FilesHashing& operator=(const FilesHashing&) = delete;

  // A line for each file, "sha256  name", in the order of the names. Call once. Equal on every rank. Ends early if poll
  // returns true; then the lines have no meaning. Throws Error(kInputOutput) as hash_files() does. Collective over
  // world.
  std::vector<std::string> lines(const Communicator& world, const StopPoll& poll);

 private:
  std::vector<std::string> paths_;
  std::vector<int> rank_of_;  // by path
  std::vector<std::string> mine_, hashes_;
  int threads_ = 1;
  std::atomic<bool> ends_{false}, done_{false};
  std::exception_ptr error_;
  std::thread thread_;
};

// The files that model_sha256() hashes.
std::vector<std::string> model_files(const std::string& model_path, const TensorFile& file);

// Equal on every rank. Ends early if poll returns true on any rank; then `whole` has no meaning. adapter: the adapter's
// files among those of `file`. begun: hashing of model_files() that was started before, or null. Collective over world.
ModelHash model_sha256(const Communicator& world, const std::string& model_path, const TensorFile& file,
                       const std::vector<std::string>& adapter, const StopPoll& poll = {},
                       FilesHashing* begun = nullptr);

// Hash of the lines of these files in the order of their names. Equal on every rank. Ends early as above. Collective
// over world.
std::string files_sha256(const Communicator& world, const std::vector<std::string>& paths, const StopPoll& poll = {});

// files_sha256 of these small files, read by rank 0 only: it may have just written them, and other hosts may not see
// them yet. Equal on every rank. Ends early as above. Collective over world.
std::string small_files_sha256(const Communicator& world, const std::function<std::vector<std::string>()>& paths,
                               const StopPoll& poll);

// sha256 of one file, in hex. Throws Error(kInputOutput). Ends early if poll returns true. Local.
std::string file_sha256(const std::string& path, const StopPoll& poll = {});

}  // namespace magister
