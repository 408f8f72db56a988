// Files that the user names for output: looked at before anything is written, and written.
#pragma once

#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include "files/file.h"

namespace trifold {

// BadInput, naming `option`, unless a file of this name can be made or appended to. Makes nothing.
void check_writable_file(const std::string& option, const std::string& path);

// BadInput, naming `option`, unless the folder is there and can be written to, or can be made. Makes nothing.
void check_writable_folder(const std::string& option, const std::string& path);

// A file that is written piece by piece and replaces what was there as a whole (files/file.h), so that a
// crash leaves no half of it. What is no ordinary file, or is printed to, as /dev/stdout, is written to at
// once; so is a file in a folder that takes no new one. Errors name `option`.
class OutputFile {
 public:
  OutputFile(const std::string& option, const std::string& path);
  void write(std::string_view text);
  // Once, after the last piece; without it an ordinary file stays as it was.
  void finish();

 private:
  template <class Work>
  void named(Work&& work) const;

  std::string name_;  // option and path
  std::optional<FileReplacement> replacement_;
  std::ofstream plain_;
};

// The same with the whole text at once.
void write_file(const std::string& option, const std::string& path, const std::string& text);

}  // namespace trifold
