// StreamFiles: the text files of a streamed corpus, and the parts in which they are read.
//
// Files are plain text or JSON lines, uncompressed or compressed. A file that a path names is plain text unless its
// name says otherwise. In a folder, only files whose names identify them as text are read: JSON lines, .txt, .text, and
// no suffix or a number (wiki_00, part.17); but not README, LICENSE and the like. An uncompressed file is cut into
// parts of about kPart bytes that are read in any order; a packed one can only be read from its beginning and is one
// part. The border between neighbouring parts is after the first line end at or after the nominal cut (plain text
// without a line end within kSearch bytes: between two characters), so it is found from the file alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "files/byte_reader.h"
#include "files/raw_file.h"

namespace trifold {

enum class TextKind { Plain, JsonLines };

struct StreamFile {
  std::string path;
  std::string name;  // relative to the given folder, so that it is the same on every machine
  int64_t size = 0;  // bytes on disk
  TextKind kind = TextKind::Plain;
  Packing packing = Packing::None;
  int64_t first_part = 0;
};

class StreamFiles {
 public:
  // Each path is a file, or a folder with all text below it except hidden and empty files. BadInput for a path that
  // does not exist, a folder without text, and a file that is not text.
  explicit StreamFiles(const std::vector<std::string>& paths);

  static constexpr int64_t kPart = int64_t{1} << 18;
  static constexpr int64_t kSearch = int64_t{1} << 16;
  static constexpr int64_t kLongestLine = int64_t{1} << 26;  // longest line of JSON

  const std::vector<StreamFile>& files() const { return files_; }
  int64_t parts() const { return parts_; }
  int64_t bytes() const { return bytes_; }
  // The files that are read of each path and the files in folders that are ignored, a line each.
  const std::vector<std::string>& notes() const { return notes_; }
  // The file of a part.
  const StreamFile& file_of(int64_t part) const;
  // Changes if a file is added, removed, renamed or resized.
  const std::string& fingerprint() const { return fingerprint_; }

 private:
  void add_folder(const std::string& folder);
  void add_file(const std::string& path, const std::string& name, int64_t size);
  void number_parts();

  void note(const std::string& path, size_t before, const std::vector<std::string>& left_out);

  std::vector<StreamFile> files_;
  std::vector<std::string> notes_;
  int64_t parts_ = 0;
  int64_t bytes_ = 0;
  std::string fingerprint_;
};

// Whether --data-path streams a file of this name at any size: JSON lines and packed files.
bool is_stream_name(const std::string& path);

// Whether an unpacked file of this name has JSON lines: .jsonl, .ndjson and .json.
bool is_json_name(std::string_view name);

// BadInput for a name that identifies another kind of file: .parquet, .zip, .npy and others.
void refuse_other_kinds(const std::string& path);

// Appends the bytes of part `part` of the unpacked `file` to `text` and sets `offset` to the position of the first
// byte in the file. Appends nothing if a line longer than a part covers it. BadInput for a line longer than
// kLongestLine.
void read_part(const StreamFile& file, int64_t part, std::string& text, int64_t& offset);

}  // namespace trifold
