// SharedError: what several ranks found out together. Each of them throws it with the same text, at the same
// place of its run, so no other rank waits for one that does; one of them tells it.
#pragma once

#include <utility>

#include "core/error.h"

namespace trifold {

class SharedError : public Error {
 public:
  // `ranks` throw it; `tells` on one of them.
  SharedError(std::string message, ErrorKind kind, int ranks, bool tells)
      : Error(std::move(message), kind), ranks_(ranks), tells_(tells) {}

  int ranks() const { return ranks_; }
  bool tells() const { return tells_; }

 private:
  int ranks_;
  bool tells_;
};

// Whether all ranks of a world of `ranks` throw this error: then nobody has to be told to stop.
inline bool is_shared_by(const Error& error, int ranks) {
  if (error.kind() == ErrorKind::Agreed) return true;
  const auto* shared = dynamic_cast<const SharedError*>(&error);
  return shared != nullptr && shared->ranks() == ranks;
}

}  // namespace trifold
