// Checks and writes the output files that the user names; the checks run before anything is written.
#pragma once

#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include "files/file.h"

namespace trifold {

// BadInput, naming `option`, unless a file of this name can be created or appended to. Creates nothing.
void check_writable_file(const std::string& option, const std::string& path);

// BadInput, naming `option`, unless the folder is writable or can be created. Creates nothing.
void check_writable_folder(const std::string& option, const std::string& path);

// A file that is written piece by piece and then replaces the old one as a whole (files/file.h), so that a crash leaves
// no partial file. Written in place instead: special files, files to which the program already prints (/dev/stdout),
// and files in a folder in which no file can be created. Errors name `option`.
class OutputFile {
 public:
  OutputFile(const std::string& option, const std::string& path);
  void write(std::string_view text);
  // Call once, after the last piece; otherwise a regular file is unchanged.
  void finish();

 private:
  template <class Work>
  void named(Work&& work) const;

  std::string name_;  // option and path
  std::optional<FileReplacement> replacement_;
  std::ofstream plain_;
};

// Writes `text`, as OutputFile does.
void write_file(const std::string& option, const std::string& path, const std::string& text);

}  // namespace trifold
