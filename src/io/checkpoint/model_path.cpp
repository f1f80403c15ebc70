// Layout of the cache: models--ORG--NAME/refs/main holds a revision, snapshots/REVISION the files (huggingface_hub's guide "Understand
// caching").
#include "magister/io/checkpoint/model_path.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "magister/core/error.h"

namespace magister {
namespace {

namespace fs = std::filesystem;

// ORG/NAME of letters, digits, '.', '_' and '-', as the hub allows; no path that begins at a folder.
bool is_hub_name(const std::string& path) {
  const std::size_t slash = path.find('/');
  if (slash == 0 || slash == std::string::npos || slash + 1 == path.size() ||
      path.find('/', slash + 1) != std::string::npos)
    return false;
  if (path.size() > 200 || path[0] == '.' || path[0] == '~' || path.ends_with(".gguf") || path.ends_with(".json"))
    return false;
  return std::all_of(path.begin(), path.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '/' || c == '.' || c == '_' || c == '-';
  });
}

fs::path hub_cache() {
  const auto set = [](const char* name) {
    const char* const value = std::getenv(name);
    return value == nullptr ? std::string() : std::string(value);
  };
  if (const std::string cache = set("HF_HUB_CACHE"); !cache.empty()) return cache;
  if (const std::string cache = set("HUGGINGFACE_HUB_CACHE"); !cache.empty()) return cache;
  if (const std::string home = set("HF_HOME"); !home.empty()) return fs::path(home) / "hub";
  if (const std::string cache = set("XDG_CACHE_HOME"); !cache.empty()) return fs::path(cache) / "huggingface/hub";
  return fs::path(set("HOME")) / ".cache/huggingface/hub";
}

}  // namespace

std::string find_model(const std::string& path) {
  std::error_code error;
  if (!is_hub_name(path) || fs::exists(path, error)) return path;
  std::string folder = "models--" + path;
  folder.replace(folder.find('/'), 1, "--");
  const fs::path model = hub_cache() / folder;
  std::string revision;
  std::ifstream(model / "refs/main") >> revision;
  const fs::path snapshot = model / "snapshots" / revision;
  if (revision.empty() || revision.find('/') != std::string::npos || !fs::is_directory(snapshot, error)) return path;
  return snapshot.string();
}

std::string download_hint(const std::string& path) {
  if (!is_hub_name(path)) return {};
  return fmt::format(
      "; it looks like a name of the Hugging Face hub, which the cache {} does not hold: download it with `hf download "
      "{}`",
      printable(hub_cache().string()), path);
}

}  // namespace magister
