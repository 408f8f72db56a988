// What all callers of HDF5 in this room share: the lock, checked return codes and owned identifiers. Includes <hdf5.h>,
// which other headers do not.
#pragma once

#include <hdf5.h>

#include <filesystem>
#include <string>
#include <utility>

#include "core/error.h"

namespace trifold::hdf5 {

static_assert(sizeof(hid_t) == sizeof(int64_t), "HDF5 1.10 or later is needed");

// Holds the lock of the whole process while HDF5 is in use (checkpoint/hdf5/hdf5_file.h).
class Lock {
 public:
  Lock();
  ~Lock();
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
};

// The innermost messages of HDF5's error stack, which name the cause; the outer ones only name the callers.
std::string reason();

template <class Code>
Code ok(Code code, const char* doing) {
  check(code >= 0, "HDF5 cannot {}: {}", doing, reason());
  return code;
}

// Owns one HDF5 identifier. Writers close it explicitly, so that failures are noticed.
class Handle {
 public:
  using Closer = herr_t (*)(hid_t);
  Handle(hid_t id, Closer closer, const char* doing) : id_(ok(id, doing)), closer_(closer) {}
  ~Handle() {
    if (id_ >= 0) closer_(id_);
  }
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), closer_(other.closer_) {}
  Handle& operator=(Handle&&) = delete;

  operator hid_t() const { return id_; }  // NOLINT(google-explicit-constructor): to be passed to HDF5
  void close() { ok(closer_(std::exchange(id_, -1)), "close an object"); }

 private:
  hid_t id_;
  Closer closer_;
};

// Runs `body` under the lock; adds the file, and the object in it, to an Error as context.
template <class Body>
decltype(auto) locked(const std::filesystem::path& path, const std::string& object, Body&& body) {
  const Lock lock;
  try {
    return body();
  } catch (Error& error) {
    if (!object.empty()) error.add_context(object);
    error.add_context(path.string());
    throw;
  }
}

}  // namespace trifold::hdf5
