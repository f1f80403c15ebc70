// Layout of the cache: models--ORG--NAME/refs/main holds a revision, snapshots/REVISION the files (huggingface_hub's
// guide "Understand caching").
#include "magister/io/checkpoint/model_path.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "magister/core/error.h"
#include "magister/core/foreign_names.h"

namespace magister {
namespace {

namespace fs = std::filesystem;

// True for a Hub name of a model, not a file name.
bool is_model_name(const std::string& path) {
  return is_hub_name(path) && !path.ends_with(".gguf") && !path.ends_with(".json");
}

fs::path hub_cache() {
  const auto set = [](const char* name) {
    const char* const value = std::getenv(name);
    return value == nullptr ? std::string() : std::string(value);
  };
  if (std::string cache = set("HF_HUB_CACHE"); !cache.empty()) return cache;
  if (std::string cache = set("HUGGINGFACE_HUB_CACHE"); !cache.empty()) return cache;
  if (const std::string home = set("HF_HOME"); !home.empty()) return fs::path(home) / "hub";
  if (const std::string cache = set("XDG_CACHE_HOME"); !cache.empty()) return fs::path(cache) / "huggingface/hub";
  return fs::path(set("HOME")) / ".cache/huggingface/hub";
}

}  // namespace

bool is_hub_name(const std::string& path) {
  const std::size_t slash = path.find('/');
  if (slash == 0 || slash == std::string::npos || slash + 1 == path.size() ||
      path.find('/', slash + 1) != std::string::npos)
    return false;
  if (path.size() > 200 || path[0] == '.' || path[0] == '~') return false;
  return std::all_of(path.begin(), path.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '/' || c == '.' || c == '_' || c == '-';
  });
}

std::string hub_snapshot(const std::string& kind, const std::string& name) {
  std::error_code error;
  const std::size_t slash = name.find('/');
  const fs::path home = hub_cache() / (kind + "--" + name.substr(0, slash) + "--" + name.substr(slash + 1));
  std::string revision;
  std::ifstream(home / "refs/main") >> revision;
  const fs::path snapshot = home / "snapshots" / revision;
  if (revision.empty() || revision.find('/') != std::string::npos || !fs::is_directory(snapshot, error)) return {};
  return snapshot.string();
}

std::string find_model(const std::string& path) {
  std::error_code error;
  if (!is_model_name(path) || fs::exists(path, error)) return path;
  const std::string snapshot = hub_snapshot("models", path);
  return snapshot.empty() ? path : snapshot;
}

std::string download_hint(const std::string& path) {
  return is_model_name(path) ? hub_hint(path) : foreign_model(path);
}

std::string hub_hint(const std::string& arguments) {
  return fmt::format(
      "; it looks like a name of the Hugging Face hub, which the cache {} does not hold: download it with `hf download "
      "{}`",
      printable(hub_cache().string()), arguments);
}

}  // namespace magister
