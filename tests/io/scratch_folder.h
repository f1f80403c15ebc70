// A folder for one test, made by rank 0, known to all ranks and removed at the end; and bytes written into it.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "magister/parallel/communicator.h"

namespace magister::test {

class ScratchFolder {
 public:
  // Collective over world (or of one process, alone).
  explicit ScratchFolder(const Communicator& world = Communicator()) : is_owner_(world.rank() == 0) {
    if (is_owner_) {
      path_ = (std::filesystem::temp_directory_path() / "magister-io-XXXXXX").string();
      if (::mkdtemp(path_.data()) == nullptr) path_.clear();
    }
    world.broadcast(path_, 0);
  }
  ~ScratchFolder() {
    std::error_code error;
    if (is_owner_ && !path_.empty()) std::filesystem::remove_all(path_, error);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }
  // Rank 0 writes.
  std::string write(const std::string& name, std::string_view bytes) const {
    if (is_owner_)
      std::ofstream(*this / name, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return *this / name;
  }

 private:
  bool is_owner_;
  std::string path_;
};

}  // namespace magister::test
