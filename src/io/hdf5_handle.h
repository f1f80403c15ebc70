// Owners of HDF5 identifiers. Move-only; the destructor closes silently: no log, no exception. Calls go through
// MAGISTER_CHECK_HDF5 or MAGISTER_READ_HDF5, whose message names the file, the call and HDF5's own reason.
#pragma once

#include <hdf5.h>

#include <string>
#include <utility>

#include "magister/core/error.h"

namespace magister {

template <herr_t (*Close)(hid_t)>
class Hdf5Handle {
 public:
  Hdf5Handle() = default;
  explicit Hdf5Handle(hid_t id) : id_(id) {}
  ~Hdf5Handle() { reset(); }
  Hdf5Handle(Hdf5Handle&& other) noexcept : id_(std::exchange(other.id_, H5I_INVALID_HID)) {}
  Hdf5Handle& operator=(Hdf5Handle&& other) noexcept {
    if (this != &other) {
      reset();
      id_ = std::exchange(other.id_, H5I_INVALID_HID);
    }
    return *this;
  }
  hid_t get() const { return id_; }
  // Closes now; false if closing failed. For files, where closing writes.
  bool close() noexcept { return id_ < 0 || Close(std::exchange(id_, H5I_INVALID_HID)) >= 0; }

 private:
  void reset() noexcept {
    if (id_ >= 0) Close(id_);
    id_ = H5I_INVALID_HID;
  }
  hid_t id_ = H5I_INVALID_HID;
};

using H5File = Hdf5Handle<&H5Fclose>;
using H5Group = Hdf5Handle<&H5Gclose>;
using H5Dataset = Hdf5Handle<&H5Dclose>;
using H5Space = Hdf5Handle<&H5Sclose>;
using H5Type = Hdf5Handle<&H5Tclose>;
using H5Attribute = Hdf5Handle<&H5Aclose>;
using H5Properties = Hdf5Handle<&H5Pclose>;

// Turns off HDF5's own printing of errors (our messages name the file and the call) and the loading of filter plug-ins,
// which a foreign file could request.
inline void silence_hdf5() {
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  H5PLset_loading_state(0);
}

// The innermost entry of HDF5's error stack, which contains errno.
inline std::string hdf5_reason() {
  std::string reason = "no reason given";
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned depth, const H5E_error2_t* entry, void* text) -> herr_t {
        if (depth == 0 && entry->desc != nullptr) *static_cast<std::string*>(text) = entry->desc;
        return 0;
      },
      &reason);
  return printable(reason);
}

// Checks the result of an HDF5 call: negative is an error.
template <typename T>
T check_hdf5(T result, const char* call, const std::string& path, ExitCode code) {
  MAGISTER_CHECK(result >= 0, code, "{}: {} failed: {} (the HDF5 file cannot be used); check the disk and the file",
                 printable(path), std::string(call).substr(0, std::string(call).find('(')), hdf5_reason());
  return result;
}

}  // namespace magister

// The first is for writing a file of ours, the second for reading a file that may be damaged.
#define MAGISTER_CHECK_HDF5(call, path) \
  ::magister::check_hdf5((call), #call, (path), ::magister::ExitCode::kInputOutput)
#define MAGISTER_READ_HDF5(call, path) ::magister::check_hdf5((call), #call, (path), ::magister::ExitCode::kData)
