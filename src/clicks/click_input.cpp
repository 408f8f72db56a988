#include "clicks/click_input.h"

#include <algorithm>
#include <filesystem>

#include "clicks/click_layout.h"
#include "core/error.h"
#include "core/suffix.h"
#include "files/byte_reader.h"
#include "files/files_below.h"
#include "files/raw_file.h"

namespace trifold {

namespace fs = std::filesystem;

namespace {

constexpr size_t kBeginningBytes = size_t{4} << 20;  // bytes of the beginning of a packed file
constexpr size_t kMarkBytes = 3;                     // bytes of a byte order mark

// Whether a file is read together with the file of labels next to it.
bool belongs_to_labels(const std::string& name) {
  return has_suffix(name, "_multi_hot.npz") || has_suffix(name, "_dense.npy") ||
         has_suffix(name, "_sparse.npy");
}

bool is_click_file(const fs::path& path) {
  std::string name = path.filename().string();
  if (has_suffix(name, ".parquet") || is_norm_file(path.string())) return true;
  if (has_suffix(name, ".npz")) return !belongs_to_labels(name);
  if (has_suffix(name, ".npy")) return has_suffix(name, "_labels.npy");  // stands for all three files
  name = without_packing(name);
  return has_suffix(name, ".csv") || has_suffix(name, ".tsv") || has_suffix(name, ".txt") ||
         name.starts_with("day_");
}

// Reads until `out` is full or the file ends; returns the number of bytes.
size_t read_as_much(ByteReader& reader, std::span<char> out) {
  size_t done = 0;
  while (done < out.size()) {
    const size_t count = reader.read(out.subspan(done));
    if (count == 0) break;
    done += count;
  }
  return done;
}

}  // namespace

ClickInput::ClickInput(const std::string& path) : path_(path) {
  const Packing packing = packing_of(path);
  if (packing == Packing::None) {
    file_.emplace(path);
    size_ = file_->size();
    return;
  }
  size_ = RawFile(path, RawFile::Mode::Read).size();
  reader_ = open_bytes(path, packing);
  fill(kBeginningBytes);
}

std::string_view ClickInput::beginning() const {
  std::string_view text = file_ ? file_->text() : std::string_view(waiting_);
  if (!file_ && text.size() >= kBeginningBytes)
    if (const size_t end = text.rfind('\n'); end != std::string_view::npos) text = text.substr(0, end + 1);
  return without_mark(text);
}

// Unpacks until `bytes` bytes are waiting or the file ends; false at the end.
bool ClickInput::fill(size_t bytes) {
  waiting_.erase(0, given_);
  given_ = 0;
  const size_t before = waiting_.size();
  if (before >= bytes) return true;
  waiting_.resize(bytes);
  const size_t count = read_as_much(*reader_, std::span(waiting_).subspan(before));
  waiting_.resize(before + count);
  return waiting_.size() == bytes;
}

std::optional<ClickInput::Window> ClickInput::next(size_t bytes) {
  Window window;
  window.first_byte = at_;
  if (file_) {
    const std::string_view text = text_of(*file_);
    const auto begin = static_cast<size_t>(at_);
    if (begin >= text.size()) return std::nullopt;
    const auto mark = static_cast<int64_t>(file_->text().size() - text.size());
    file_->release(mark + released_, mark + at_);
    released_ = at_;
    window.text = text.substr(begin, click_line_start(text, begin + bytes) - begin);
    at_ += static_cast<int64_t>(window.text.size());
    window.share = static_cast<double>(at_) / static_cast<double>(text.size());
    return window;
  }
  const bool more = fill(bytes + kLongestClickLine + kMarkBytes);
  std::string_view text = waiting_;
  if (at_ == 0) text = without_mark(text);
  if (text.empty()) return std::nullopt;
  if (more) text = text.substr(0, click_line_start(text, bytes));
  given_ = static_cast<size_t>(text.data() + text.size() - waiting_.data());
  at_ += static_cast<int64_t>(text.size());
  window.text = text;
  window.share = more ? 0 : 1;  // the amount still packed is not known
  return window;
}

bool is_norm_file(const std::string& path) {
  constexpr size_t kHeaderBytes = 64;
  std::error_code ignored;
  if (!has_suffix(path, ".data") || !fs::is_regular_file(path, ignored)) return false;
  const MappedFile file(path);
  return file.text().substr(0, kHeaderBytes).find('\0') != std::string_view::npos;
}

size_t click_line_start(std::string_view text, size_t at) {
  if (at >= text.size()) return text.size();
  const size_t end = text.substr(0, at + kLongestClickLine).find('\n', at - 1);
  return end == std::string_view::npos ? std::min(text.size(), at + kLongestClickLine) : end + 1;
}

std::vector<std::string> click_inputs(const std::vector<std::string>& paths,
                                      std::vector<std::string>* left_out) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code ignored;
    if (!fs::is_directory(path, ignored)) {
      files.push_back(path);
      continue;
    }
    const size_t before = files.size();
    for (const fs::path& file : files_below(path, [](const fs::path&) {})) {
      if (is_click_file(file))
        files.push_back(file.string());
      else if (left_out != nullptr && !belongs_to_labels(file.filename().string()))
        left_out->push_back(file.lexically_relative(path).string());
    }
    if (files.size() == before)
      bad_input(
          "{} is a folder without clicks: no name in it ends in .csv, .tsv or .txt, "
          "optionally followed by {}, "
          "in .parquet, .npz, _labels.npy, or, of binary files, in .data",
          path, kPackedEndings);
  }
  return files;
}

}  // namespace trifold
