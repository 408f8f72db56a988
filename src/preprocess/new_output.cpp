#include "preprocess/new_output.h"

#include <filesystem>

#include "core/error.h"

namespace trifold {

std::unique_ptr<ScratchFolder> scratch_beside(const std::string& output) {
  std::error_code ignored;
  if (std::filesystem::exists(output, ignored))
    bad_input("{} already exists; name another folder, or remove it", output);
  try {
    return std::make_unique<ScratchFolder>(output);
  } catch (const Error& error) {
    bad_input("{}", error.what());
  }
}

}  // namespace trifold
