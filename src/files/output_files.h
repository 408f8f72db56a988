// Files that the user names for output: looked at before anything is written, and written.
#pragma once

#include <string>

namespace trifold {

// BadInput, naming `option`, unless a file of this name can be made or appended to. Makes nothing.
void check_writable_file(const std::string& option, const std::string& path);

// BadInput, naming `option`, unless the folder is there and can be written to, or can be made. Makes nothing.
void check_writable_folder(const std::string& option, const std::string& path);

// Replaces a file, or makes it, as replace_text does (files/file.h), so that a crash leaves no half of it.
// What is no ordinary file, or is printed to, as /dev/stdout, is written to; so is a file in a folder that
// takes no new one. Failure, naming `option`, where that fails.
void write_file(const std::string& option, const std::string& path, const std::string& text);

}  // namespace trifold
