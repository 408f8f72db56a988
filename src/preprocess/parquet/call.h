// Calls of Arrow's libraries, none of whose exceptions leave the module.
#pragma once

#include <arrow/status.h>

#include <exception>
#include <string>

namespace trifold {

// Whether `body`, which returns a Status, went well; else why not in `problem`.
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
