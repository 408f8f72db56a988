// Calls of Arrow's libraries, none of whose exceptions leave the module.
#pragma once

#include <arrow/status.h>

#include <exception>
#include <string>

namespace trifold {

// Whether `body`, which returns a Status, succeeded; if not, `problem` says why.
template <class Body>
bool went_well(std::string& problem, const Body& body) {
  try {
    const arrow::Status status = body();
    problem = status.message();
    return status.ok();
  } catch (const std::exception& error) {
    problem = error.what();
    return false;
  }
}

}  // namespace trifold
