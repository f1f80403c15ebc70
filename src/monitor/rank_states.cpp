// See rank_states.h.
#include "magister/monitor/rank_states.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "magister/core/error.h"
#include "magister/core/file_descriptor.h"

namespace magister {
namespace {

constexpr int kStateSchema = 1;
constexpr std::uintmax_t kMostStateBytes = 1 << 20;

}  // namespace

std::string rank_state_path(const std::string& folder, int rank) {
  return fmt::format("{}/rank-{:04d}.json", folder, rank);
}

bool replace_small_file(const std::string& path, const std::string& text) noexcept {
  try {
    const std::string fresh = path + ".creating";
    {
      const FileDescriptor file(
          ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644));
      if (!file.is_open()) return false;
      for (std::size_t done = 0; done < text.size();) {
        const ssize_t n = ::write(file.number(), text.data() + done, text.size() - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        done += static_cast<std::size_t>(n);
      }
    }
    return ::rename(fresh.c_str(), path.c_str()) == 0;
  } catch (...) {
    errno = ENOMEM;
    return false;
  }
}

std::vector<nlohmann::json> read_rank_states(const std::string& folder, const std::string& start) {
  namespace fs = std::filesystem;
  std::vector<nlohmann::json> states;
  std::error_code error;
  int end = 0;  // above the highest rank; a listing may miss a file that is renamed meanwhile, so files go by number
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    int rank = -1;
    if (std::sscanf(entry.path().filename().c_str(), "rank-%d.json", &rank) == 1) end = std::max(end, rank + 1);
  }
  for (int rank = 0; rank < end; ++rank) {
    const fs::path path = rank_state_path(folder, rank);
    if (!fs::is_regular_file(fs::symlink_status(path, error)) || fs::file_size(path, error) > kMostStateBytes) continue;
    std::ifstream file(path);
    nlohmann::json state = nlohmann::json::parse(file, nullptr, false);
    if (!state.is_object() || state_number(state, "schema") > kStateSchema || !state.contains("rank")) continue;
    end = std::max(end, static_cast<int>(std::min(state_number(state, "ranks"), 1e6)));
    if (!start.empty() && state_text(state, "start") != start) continue;
    states.push_back(std::move(state));
  }
  return states;
}

nlohmann::json state_member(const nlohmann::json& state, const char* key) {
  if (!state.is_object()) return nullptr;
  const auto found = state.find(key);
  return found != state.end() ? *found : nlohmann::json();
}

std::string state_text(const nlohmann::json& state, const char* key) {
  const nlohmann::json member = state_member(state, key);
  return member.is_string() ? member.get<std::string>() : std::string();
}

double state_number(const nlohmann::json& state, const char* key, double fallback) {
  const nlohmann::json member = state_member(state, key);
  return member.is_number() ? member.get<double>() : fallback;
}

}  // namespace magister
