#include "text/stream_files.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <span>

#include "core/bytes_text.h"
#include "core/error.h"
#include "core/plain_text.h"
#include "core/printable.h"
#include "core/random.h"
#include "core/suffix.h"
#include "files/files_below.h"

namespace trifold {

namespace {

namespace fs = std::filesystem;

constexpr const char* kKinds =
    "plain text and JSON lines (.jsonl, .ndjson, .json), also compressed (.gz, .zst, .xz or .bz2)";

TextKind text_kind(std::string_view path) {
  return is_json_name(without_packing(path)) ? TextKind::JsonLines : TextKind::Plain;
}

// Whether a name is that of a file about the data: README, LICENSE.txt, CHANGELOG-2.md.
bool is_about_the_data(std::string_view name) {
  static const std::array<std::string_view, 10> kNames{"readme",   "license",   "licence", "copying",
                                                       "notice",   "changelog", "authors", "contributing",
                                                       "citation", "copyright"};
  const size_t end = std::min(name.find_first_of(".-_ "), name.size());
  return std::any_of(kNames.begin(), kNames.end(), [&](std::string_view known) {
    return end == known.size() && has_suffix(name.substr(0, end), known);
  });
}

std::string name_of_file(const std::string& path) {
  return fs::path(without_packing(path)).filename().string();
}

// Whether the name of a file in a folder says that it is text.
bool is_text_name(const std::string& path) {
  const std::string name = name_of_file(path);
  if (is_json_name(name) || has_suffix(name, ".txt") || has_suffix(name, ".text")) return true;
  const std::string suffix = fs::path(name).extension().string();
  return std::all_of(suffix.begin(), suffix.end(), [](char c) { return c == '.' || (c >= '0' && c <= '9'); });
}

}  // namespace

bool is_json_name(std::string_view name) {
  return has_suffix(name, ".jsonl") || has_suffix(name, ".ndjson") || has_suffix(name, ".json");
}

void refuse_other_kinds(const std::string& path) {
  static const std::array<std::string_view, 20> kOthers{
      ".lz4", ".zip", ".7z", ".tar", ".tgz", ".parquet", ".arrow", ".bin",         ".idx", ".npy",
      ".npz", ".pdf", ".h5", ".png", ".jpg", ".jpeg",    ".gif",   ".safetensors", ".pt",  ".o"};
  const std::string_view name = without_packing(path);
  for (const std::string_view ending : kOthers)
    if (has_suffix(name, ending))
      bad_input(
          "{}: text cannot be read from a {} file, only from {}: decompress it, or move it out of the folder",
          path, ending, kKinds);
}

namespace {

// The end of the part before `at`: the first possible border at or after `at`.
int64_t boundary(const RawFile& file, const StreamFile& of, int64_t at) {
  if (at == 0 || at >= of.size) return std::min(at, of.size);
  const int64_t limit = of.kind == TextKind::JsonLines ? StreamFiles::kLongestLine : StreamFiles::kSearch;
  std::array<char, 4096> block;
  int64_t from = at - 1;
  while (from < of.size && from - at < limit) {
    const auto count = static_cast<size_t>(std::min<int64_t>(block.size(), of.size - from));
    file.read(std::as_writable_bytes(std::span(block).first(count)), from);
    const std::string_view found(block.data(), count);
    const size_t end = found.find('\n');
    if (end != std::string_view::npos) return from + static_cast<int64_t>(end) + 1;
    from += static_cast<int64_t>(count);
  }
  if (from >= of.size) return of.size;
  if (of.kind == TextKind::JsonLines)
    bad_input("{}: the line around byte {} is longer than {} bytes; one JSON object a line is expected",
              of.path, at, limit);
  const auto count = static_cast<size_t>(std::min<int64_t>(4, of.size - at));
  file.read(std::as_writable_bytes(std::span(block).first(count)), at);
  size_t skip = 0;
  while (skip < count && (static_cast<unsigned char>(block.at(skip)) & 0xC0U) == 0x80U) ++skip;
  return at + static_cast<int64_t>(skip);
}

}  // namespace

bool is_stream_name(const std::string& path) {
  return text_kind(path) == TextKind::JsonLines || packing_of(path) != Packing::None;
}

StreamFiles::StreamFiles(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    std::error_code error;
    if (fs::is_directory(path, error)) {
      add_folder(path);
    } else {
      const size_t before = files_.size();
      add_file(path, fs::path(path).filename().string(), RawFile(path, RawFile::Mode::Read).size());
      note(path, before, {});
    }
  }
  number_parts();
}

void StreamFiles::add_folder(const std::string& folder) {
  const std::vector<fs::path> found = files_below(folder, [](const fs::path& link) {
    bad_input("{} is a link to a folder, which is not followed: name that folder with --data-path",
              link.string());
  });
  std::error_code error;
  // If some names identify their files as text, other files are notes or scripts; in a folder without such names, as
  // one of source code, they are the text.
  const bool any_suffix = std::none_of(found.begin(), found.end(), [](const fs::path& path) {
    return is_text_name(path.string()) && !is_about_the_data(name_of_file(path.string()));
  });
  const size_t before = files_.size();
  std::vector<std::string> left_out;
  for (const fs::path& path : found) {
    const uintmax_t size = fs::file_size(path, error);
    if (error) bad_input("{}: the size of the file cannot be read: {}", path.string(), error.message());
    if (size == 0) continue;
    const std::string name = path.lexically_relative(folder).generic_string();
    refuse_other_kinds(path.string());
    if (!is_about_the_data(name_of_file(name)) && (any_suffix || is_text_name(name)))
      add_file(path.string(), name, static_cast<int64_t>(size));
    else
      left_out.push_back(name);
  }
  if (files_.size() == before && left_out.empty())
    bad_input("{}: the folder holds no text; {} are looked for", folder, kKinds);
  if (files_.size() == before)
    bad_input("{}: the folder has only {}: a run reads such files if --data-path names them", folder,
              list_of_names(left_out));
  note(folder, before, left_out);
}

void StreamFiles::note(const std::string& path, size_t before, const std::vector<std::string>& left_out) {
  const std::span<const StreamFile> found = std::span(files_).subspan(before);
  const auto json = std::count_if(found.begin(), found.end(),
                                  [](const StreamFile& file) { return file.kind == TextKind::JsonLines; });
  const int64_t plain = std::ssize(found) - json;
  int64_t bytes = 0;
  for (const StreamFile& file : found) bytes += file.size;
  const auto files = [](int64_t count, const char* kind) {
    return count == 0 ? "" : fmt::format(", {} file{} of {}", count, count == 1 ? "" : "s", kind);
  };
  std::string text = fmt::format("{}: {}{}{}", printable(path, 200), bytes_text(static_cast<size_t>(bytes)),
                                 files(plain, "plain text"), files(json, "JSON lines"));
  if (!left_out.empty()) text += fmt::format("; left out: {}", list_of_names(left_out));
  notes_.push_back(std::move(text));
}

void StreamFiles::add_file(const std::string& path, const std::string& name, int64_t size) {
  refuse_other_kinds(path);
  StreamFile file;
  file.path = path;
  file.name = name;
  file.size = size;
  file.kind = text_kind(path);
  file.packing = packing_of(path);
  if (file.size == 0) bad_input("{}: the file is empty", path);
  files_.push_back(std::move(file));
}

void StreamFiles::number_parts() {
  std::string all;
  for (StreamFile& file : files_) {
    file.first_part = parts_;
    parts_ += file.packing == Packing::None ? (file.size + kPart - 1) / kPart : 1;
    bytes_ += file.size;
    const PhiloxKey hash = philox_key(static_cast<uint64_t>(file.size), file.name);
    all += fmt::format("{:08x}{:08x}", hash.hi, hash.lo);
    if (all.size() >= 4096) {
      const PhiloxKey folded = philox_key(0, all);
      all = fmt::format("{:08x}{:08x}", folded.hi, folded.lo);
    }
  }
  const PhiloxKey hash = philox_key(files_.size(), all);
  fingerprint_ = fmt::format("{:08x}{:08x}", hash.hi, hash.lo);
}

const StreamFile& StreamFiles::file_of(int64_t part) const {
  const auto next = std::upper_bound(files_.begin(), files_.end(), part,
                                     [](int64_t p, const StreamFile& file) { return p < file.first_part; });
  return *(next - 1);
}

void read_part(const StreamFile& file, int64_t part, std::string& text, int64_t& offset) {
  const RawFile content(file.path, RawFile::Mode::Read);
  if (content.size() < file.size)
    bad_input("{} has {} bytes now and had {} when the run began; files must stay as they are", file.path,
              content.size(), file.size);
  const int64_t nominal = (part - file.first_part) * StreamFiles::kPart;
  offset = boundary(content, file, nominal);
  const int64_t end = boundary(content, file, nominal + StreamFiles::kPart);
  if (end <= offset) return;
  const size_t before = text.size();
  text.resize(before + static_cast<size_t>(end - offset));
  content.read(std::as_writable_bytes(std::span(text).subspan(before)), offset);
  if (offset == 0) expect_plain_text(std::string_view(text).substr(before), file.path);
}

}  // namespace trifold
