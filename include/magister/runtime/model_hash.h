// sha256 of a model: of the file's bytes when it is one file (equal to sha256sum), else of the lines "sha256  name" of
// config.json, tokenizer.json and the tensor files, as sha256sum prints them. Ranks hash different files at once.
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

// Root attribute of a training's results: model_sha256 of the folder that it has written, of an adapter adapter_sha256.
constexpr const char* kModelFolderKey = "model_folder_sha256";
// And files_sha256 of what stands beside weights and config there (files_beside_weights): chats are written and texts end by it.
constexpr const char* kModelFolderFilesKey = "model_folder_files_sha256";

struct ModelHash {
  std::string whole;
  std::string base;  // of all but the adapter's files; empty where there is no adapter or hashing ended early
};

// Hashing that begins now, beside what the rank does until it asks: each rank hashes its part of the files on its share of the host's cores.
class FilesHashing {
 public:
  // Collective over world.
  FilesHashing(const Communicator& world, std::vector<std::string> paths);
  ~FilesHashing();  // ends early
  FilesHashing(const FilesHashing&) = delete;
  FilesHashing& operator=(const FilesHashing&) = delete;

  // A line for each file, "sha256  name", in the order of the names. Asked once. Equal on every rank; ends early when poll says so: the lines mean
  // nothing then. Throws Error(kInputOutput) as hash_files() does. Collective over world.
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

// What model_sha256() hashes.
std::vector<std::string> model_files(const std::string& model_path, const TensorFile& file);

// Equal on every rank. Ends early when poll says so on any: `whole` means nothing then. adapter: its files, of those that `file` names. begun: of
// model_files(), else null. Collective over world.
ModelHash model_sha256(const Communicator& world, const std::string& model_path, const TensorFile& file,
                       const std::vector<std::string>& adapter, const StopPoll& poll = {},
                       FilesHashing* begun = nullptr);

// Hash of the lines of these files in the order of their names. Equal on every rank. Ends early likewise. Collective over world.
std::string files_sha256(const Communicator& world, const std::vector<std::string>& paths, const StopPoll& poll = {});

// files_sha256 of these small files on rank 0, which may have written them just now: other hosts may not see them yet. Equal on every rank; ends
// early likewise. Collective over world.
std::string small_files_sha256(const Communicator& world, const std::function<std::vector<std::string>()>& paths,
                               const StopPoll& poll);

// sha256 of one file, in hex. Throws Error(kInputOutput). Ends early when poll says so. Local.
std::string file_sha256(const std::string& path, const StopPoll& poll = {});

}  // namespace magister
