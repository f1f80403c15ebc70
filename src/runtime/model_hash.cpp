// Hashes the model's files, divided over the ranks by bytes, and on each rank over its cores (file_hashes.h).
#include "magister/runtime/model_hash.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <numeric>
#include <system_error>
#include <utility>
#include <vector>

#include "magister/core/sha256.h"
#include "magister/parallel/probes.h"
#include "runtime/file_hashes.h"

namespace magister {

std::string file_sha256(const std::string& path, const StopPoll& poll) { return hash_files({path}, 2, poll).front(); }

namespace {

// The sizes as rank 0 sees them, so that all ranks use the same. Collective over world.
std::vector<std::uint64_t> sizes_of(const Communicator& world, const std::vector<std::string>& paths) {
  std::vector<std::uint64_t> bytes;
  for (const std::string& path : paths) {
    std::error_code error;
    const std::uintmax_t size = std::filesystem::file_size(path, error);
    bytes.push_back(error ? 0 : size);
  }
  world.broadcast(bytes.data(), bytes.size() * sizeof(std::uint64_t), 0);
  return bytes;
}

}  // namespace

FilesHashing::FilesHashing(const Communicator& world, std::vector<std::string> paths) : paths_(std::move(paths)) {
  std::sort(paths_.begin(), paths_.end(), [](const std::string& a, const std::string& b) {
    return std::filesystem::path(a).filename() < std::filesystem::path(b).filename();
  });
  const std::vector<RankProbe> ranks = probe_ranks(world);
  // The order alternates between hosts, so that each host reads its own part of the files.
  std::vector<int> order(ranks.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return ranks[static_cast<std::size_t>(a)].local_rank < ranks[static_cast<std::size_t>(b)].local_rank;
  });
  rank_of_ = divide_by_bytes(sizes_of(world, paths_), order);
  for (std::size_t i = 0; i < paths_.size(); ++i) {
    if (rank_of_[i] == world.rank()) mine_.push_back(paths_[i]);
  }
  threads_ = core_shares(ranks)[static_cast<std::size_t>(world.rank())];
  if (mine_.empty()) return;
  try {
    thread_ = std::thread([this] {
      try {
        hashes_ = hash_files(mine_, threads_, [this] { return ends_.load(); });
      } catch (...) {
        error_ = std::current_exception();
      }
      done_ = true;
    });
  } catch (const std::system_error&) {  // no thread can start: lines() hashes
  }
}

FilesHashing::~FilesHashing() {
  ends_ = true;
  if (thread_.joinable()) thread_.join();
}

std::vector<std::string> FilesHashing::lines(const Communicator& world, const StopPoll& poll) {
  if (thread_.joinable()) {
    while (!done_ && !ends_) {
      if (poll && poll()) ends_ = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    thread_.join();
    if (error_) std::rethrow_exception(error_);
  } else if (!mine_.empty()) {
    hashes_ = hash_files(mine_, threads_, poll);
  }
  std::string own;
  for (std::size_t i = 0, next = 0; i < paths_.size(); ++i) {
    if (rank_of_[i] != world.rank()) continue;
    own += fmt::format("{:08} {}  {}\n", i, hashes_[next++], std::filesystem::path(paths_[i]).filename().string());
  }
  // Restores the order of the names: each line starts with its index.
  std::vector<std::string> all;
  for (const std::string& part : world.all_gather(own)) {
    for (std::size_t begin = 0; begin < part.size();) {
      const std::size_t end = part.find('\n', begin) + 1;
      all.push_back(part.substr(begin, end - begin));
      begin = end;
    }
  }
  std::sort(all.begin(), all.end());
  for (std::string& line : all) line.erase(0, 9);
  return all;
}

namespace {

std::string sha256_of(const std::vector<std::string>& lines) {
  Sha256 hash;
  for (const std::string& line : lines) hash.update(line);
  return hash.hex();
}

}  // namespace

std::vector<std::string> model_files(const std::string& model_path, const TensorFile& file) {
  std::vector<std::string> paths = file.paths();
  const bool folder = std::filesystem::is_directory(model_path);
  for (const char* name : {"config.json", "tokenizer.json"}) {
    const std::string path = (std::filesystem::path(model_path) / name).string();
    if (folder && std::filesystem::exists(path)) paths.push_back(path);
  }
  return paths;
}

ModelHash model_sha256(const Communicator& world, const std::string& model_path, const TensorFile& file,
                       const std::vector<std::string>& adapter, const StopPoll& poll, FilesHashing* begun) {
  const bool folder = std::filesystem::is_directory(model_path);
  std::vector<std::string> lines = begun != nullptr
                                       ? begun->lines(world, poll)
                                       : FilesHashing(world, model_files(model_path, file)).lines(world, poll);
  const auto hash = [&] { return lines.size() == 1 && !folder ? lines.front().substr(0, 64) : sha256_of(lines); };
  ModelHash found = {.whole = hash(), .base = ""};
  if (adapter.empty() || world.max(std::uint64_t{poll && poll()}) > 0) return found;
  std::erase_if(lines, [&](const std::string& line) {
    return std::any_of(adapter.begin(), adapter.end(), [&](const std::string& path) {
      return line.ends_with("  " + std::filesystem::path(path).filename().string() + "\n");
    });
  });
  found.base = hash();
  return found;
}

std::string files_sha256(const Communicator& world, const std::vector<std::string>& paths, const StopPoll& poll) {
  return sha256_of(FilesHashing(world, paths).lines(world, poll));
}

std::string small_files_sha256(const Communicator& world, const std::function<std::vector<std::string>()>& paths,
                               const StopPoll& poll) {
  std::string found = world.rank() == 0 ? files_sha256(Communicator(), paths(), poll) : "";
  world.broadcast(found, 0);
  return found;
}

}  // namespace magister
