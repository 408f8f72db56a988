// The checks of `trifold doctor`: each looks at one part of this host and this build, and throws nothing.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace trifold::launch {

struct Check {
  enum class State {
    Ok,
    Absent,  // not installed, not built, or not used: no failure
    Broken,  // present, and commands that need it would fail
  };
  std::string key;    // in JSON: "mpi"
  std::string title;  // in the table: "MPI"
  State state = State::Ok;
  std::string found;              // what is present, or what is wrong; one or two sentences
  std::string advice;             // how to get or repair it; empty: nothing to do
  nlohmann::ordered_json values;  // an object with the same keys in every state; null: unknown
};

// Runs `look`, which fills in a check; an exception makes it Broken with the exception's message.
Check checked(std::string_view key, std::string_view title, void (*look)(Check&));

// CPU, memory, linked libraries and batch system.
std::vector<Check> check_host();
// MPI, CUDA and Parquet.
std::vector<Check> check_modules();

// The first executable file `name` in the folders of PATH; empty: there is none.
std::string command_in_path(const char* name);

}  // namespace trifold::launch
