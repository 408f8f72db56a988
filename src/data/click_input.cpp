#include "data/click_input.h"

#include <algorithm>
#include <filesystem>

#include "core/error.h"
#include "data/click_layout.h"
#include "data/stream_files.h"
#include "files/byte_reader.h"
#include "files/raw_file.h"

namespace trifold {

namespace fs = std::filesystem;

namespace {

constexpr size_t kBeginningBytes = size_t{4} << 20;  // bytes of the beginning of a packed file
constexpr size_t kUnpackedChunk = size_t{1} << 20;   // unpacked at a time

bool is_click_text(const fs::path& path) {
  fs::path name = path.filename();
  if (packing_of(name.string()) != Packing::None) name.replace_extension();
  const std::string ending = name.extension().string();
  return ending == ".csv" || ending == ".tsv" || ending == ".txt" || name.string().starts_with("day_");
}

// As many bytes as there are, at most those of `out`.
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
  head_.resize(kBeginningBytes);
  head_.resize(read_as_much(*open_bytes(path, packing), head_));
  if (const size_t end = head_.rfind('\n'); head_.size() == kBeginningBytes && end != std::string::npos)
    head_.resize(end + 1);
}

std::string_view ClickInput::beginning() const {
  return without_mark(file_ ? file_->text() : std::string_view(head_));
}

void ClickInput::open(const std::string& folder) {
  const Packing packing = packing_of(path_);
  if (packing == Packing::None) return;
  unpacked_ = folder + "/unpacked";
  {
    const std::unique_ptr<ByteReader> reader = open_bytes(path_, packing);
    RawFile out(unpacked_, RawFile::Mode::Create);
    std::string chunk(kUnpackedChunk, 0);
    int64_t written = 0;
    int64_t line = 1;
    size_t open_line = 0;  // bytes since the last line end
    while (const size_t count = read_as_much(*reader, chunk)) {
      // A small file may unpack to more than the disk holds: one without line ends is found here.
      const std::string_view piece(chunk.data(), count);
      if (open_line + std::min(piece.find('\n'), count) > kLongestClickLine) refuse_long_line(path_, line);
      const size_t last = piece.rfind('\n');
      open_line = last == std::string_view::npos ? open_line + count : count - last - 1;
      line += std::count(piece.begin(), piece.end(), '\n');
      out.write(std::as_bytes(std::span(chunk).first(count)), written);
      written += static_cast<int64_t>(count);
    }
  }
  file_.emplace(unpacked_);
}

std::string_view ClickInput::text() const { return text_of(*file_); }

void ClickInput::release(size_t begin, size_t end) const {
  const auto mark = static_cast<int64_t>(file_->text().size() - text().size());
  file_->release(mark + static_cast<int64_t>(begin), mark + static_cast<int64_t>(end));
}

void ClickInput::close() {
  if (unpacked_.empty()) return;
  file_.reset();
  std::error_code ignored;
  fs::remove(unpacked_, ignored);
  unpacked_.clear();
}

std::vector<std::string> click_inputs(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code ignored;
    if (!fs::is_directory(path, ignored)) {
      files.push_back(path);
      continue;
    }
    const size_t before = files.size();
    for (const fs::path& file : files_below(path, [](const fs::path&) {}))
      if (is_click_text(file)) files.push_back(file.string());
    if (files.size() == before)
      bad_input(
          "{}: is a folder without text of clicks: no name in it ends in .csv, .tsv or .txt (.gz, .zst)",
          path);
  }
  return files;
}

}  // namespace trifold
