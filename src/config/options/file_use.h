// The uses that commands make of the files that their options name, and the marks by which files that a command wrote
// are recognised.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trifold {

// Every option that names files has a use (Option::reads, writes, names). Before a command writes anything, its outputs
// are compared with its inputs and with existing files (run/command_files.h).
enum class FileUse {
  None,        // the option names no files
  Read,        // an input: a file, a folder, or the prefix of a .bin/.idx pair
  Loaded,      // a folder of checkpoints or of a model, in which a run may also save
  Written,     // a file that is written as a whole
  TokenPairs,  // the prefix of .bin/.idx pairs that are written as a whole
  Appended,    // a log, to which lines are appended
  Filled,      // a folder that the command creates, or in which it saves checkpoints
  Kept,        // a file that is read if it exists, and updated
  Scratch,     // a folder for files without a name
  Unused,      // an output that another command with this option writes, but not this one
};

constexpr bool is_output(FileUse use) {
  return use == FileUse::Written || use == FileUse::TokenPairs || use == FileUse::Appended ||
         use == FileUse::Filled || use == FileUse::Kept;
}

// A format that a command writes: the file begins with `begin`, and `content` occurs near its beginning or its end.
// Only files of such a format are replaced without --overwrite.
struct OutputMark {
  std::string begin, content;
};

// The marks of JSON and SVG documents, which name the command that made them.
OutputMark json_mark(std::string_view command);
OutputMark svg_mark(std::string_view command);
// The mark of a trace, which names no command: the run and `report` may replace each other's.
OutputMark trace_mark();
// The mark of an HTML document, whose second line it is.
OutputMark html_mark(std::string_view command);
// A JSON object, indented, with the mark as its first member.
std::string marked_json(std::string object, std::string_view command);
// An SVG document with the mark as a comment in its first element.
std::string marked_svg(std::string document, std::string_view command);
// An HTML document, whose first line is <!doctype html>, with the mark as a comment.
std::string marked_html(std::string document, std::string_view command);

// A file or folder that the command line names.
struct NamedFile {
  std::string option;  // as in "--save"
  std::string path;
  FileUse use = FileUse::None;
  std::vector<OutputMark> marks = {};
};

// All files that a command line names.
struct CommandFiles {
  std::vector<NamedFile> files;
  bool overwrite = false;  // --overwrite
};

}  // namespace trifold
