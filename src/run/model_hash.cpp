// Hashes the model's files, divided over the ranks by their bytes, and on each rank over its cores (file_hashes.h).
#include "magister/run/model_hash.h"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <system_error>
#include <vector>

#include "magister/core/sha256.h"
#include "magister/parallel/probes.h"
#include "run/file_hashes.h"

namespace magister {

std::string file_sha256(const std::string& path, const StopPoll& poll) { return hash_files({path}, 2, poll).front(); }

namespace {

// Rank 0's sizes: all ranks must find the same.
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

// A line for each file, "sha256  name", in the order of the names. Collective over world.
std::vector<std::string> hash_lines(const Communicator& world, std::vector<std::string> paths, const StopPoll& poll) {
  std::sort(paths.begin(), paths.end(), [](const std::string& a, const std::string& b) {
    return std::filesystem::path(a).filename() < std::filesystem::path(b).filename();
  });
  const std::vector<RankProbe> ranks = probe_ranks(world);
  // Hosts take turns: each reads its own part of the files.
  std::vector<int> order(ranks.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return ranks[static_cast<std::size_t>(a)].local_rank < ranks[static_cast<std::size_t>(b)].local_rank;
  });
  const std::vector<int> rank_of = divide_by_bytes(sizes_of(world, paths), order);
  std::vector<std::string> mine;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    if (rank_of[i] == world.rank()) mine.push_back(paths[i]);
  }
  const std::vector<std::string> hashes =
      hash_files(mine, core_shares(ranks)[static_cast<std::size_t>(world.rank())], poll);
  std::string lines;
  for (std::size_t i = 0, next = 0; i < paths.size(); ++i) {
    if (rank_of[i] != world.rank()) continue;
    lines += fmt::format("{:08} {}  {}\n", i, hashes[next++], std::filesystem::path(paths[i]).filename().string());
  }
  // Back into the order of the names: each line starts with its place.
  std::vector<std::string> all;
  for (const std::string& part : world.all_gather(lines)) {
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

std::string sha256_of(const std::vector<std::string>& lines) {
  Sha256 hash;
  for (const std::string& line : lines) hash.update(line);
  return hash.hex();
}

}  // namespace

ModelHash model_sha256(const Communicator& world, const std::string& model_path, const TensorFile& file,
                       const std::vector<std::string>& adapter, const StopPoll& poll) {
  std::vector<std::string> paths = file.paths();
  const bool folder = std::filesystem::is_directory(model_path);
  for (const char* name : {"config.json", "tokenizer.json"}) {
    const std::string path = (std::filesystem::path(model_path) / name).string();
    if (folder && std::filesystem::exists(path)) paths.push_back(path);
  }
  std::vector<std::string> lines = hash_lines(world, std::move(paths), poll);
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
  return sha256_of(hash_lines(world, paths, poll));
}

std::string small_files_sha256(const Communicator& world, const std::function<std::vector<std::string>()>& paths,
                               const StopPoll& poll) {
  std::string found = world.rank() == 0 ? files_sha256(Communicator(), paths(), poll) : "";
  world.broadcast(found, 0);
  return found;
}

}  // namespace magister
