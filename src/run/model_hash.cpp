// Hashes the model's files, one rank a file: 1-2 GB/s each where the CPU has SHA instructions.
#include "magister/run/model_hash.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <vector>

#include "magister/core/error.h"
#include "magister/core/fail_point.h"
#include "magister/core/sha256.h"

namespace magister {

std::string file_sha256(const std::string& path, const StopPoll& poll) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  MAGISTER_CHECK(file != nullptr, ExitCode::kInputOutput,
                 "{}: cannot be read ({}; its hash names the model in the results); "
                 "check the path and its permissions",
                 path, std::strerror(errno));
  Sha256 hash;
  std::vector<std::byte> block(4 << 20);
  for (std::size_t n = block.size(); n == block.size();) {
    n = std::fread(block.data(), 1, block.size(), file.get());
    hash.update(std::span(block).first(n));
    fail_point("model.hash.block");
    if (poll && poll()) break;
  }
  MAGISTER_CHECK(std::ferror(file.get()) == 0, ExitCode::kInputOutput,
                 "{}: reading broke off ({}; its hash names the model in the results); check the disk", path,
                 std::strerror(errno));
  return hash.hex();
}

namespace {

// A line for each file, "sha256  name", in the order of the names. Collective over world.
std::vector<std::string> hash_lines(const Communicator& world, std::vector<std::string> paths, const StopPoll& poll) {
  std::sort(paths.begin(), paths.end(), [](const std::string& a, const std::string& b) {
    return std::filesystem::path(a).filename() < std::filesystem::path(b).filename();
  });
  std::string lines;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    if (static_cast<int>(i % static_cast<std::size_t>(world.size())) != world.rank()) continue;
    lines += fmt::format("{:08} {}  {}\n", i, file_sha256(paths[i], poll),
                         std::filesystem::path(paths[i]).filename().string());
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
