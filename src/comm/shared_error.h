// SharedError: an error that several ranks detect together. Each of them throws it with the same text at
// the same point of its run, so no rank is left waiting; one of them reports it to the user.
#pragma once

#include <utility>

#include "core/error.h"

namespace trifold {

class SharedError : public Error {
 public:
  // `ranks`: how many ranks throw it. `reports`: whether this rank reports it.
  SharedError(std::string message, ErrorKind kind, int ranks, bool reports)
      : Error(std::move(message), kind), ranks_(ranks), reports_(reports) {}

  int ranks() const { return ranks_; }
  bool reports() const { return reports_; }

 private:
  int ranks_;
  bool reports_;
};

// Whether all ranks of a world of `ranks` ranks throw this error; then no rank needs to be aborted.
inline bool is_shared_by(const Error& error, int ranks) {
  if (error.kind() == ErrorKind::Agreed) return true;
  const auto* shared = dynamic_cast<const SharedError*>(&error);
  return shared != nullptr && shared->ranks() == ranks;
}

}  // namespace trifold
