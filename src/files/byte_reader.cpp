#include "files/byte_reader.h"

#include <algorithm>
#include <array>
#include <vector>

#include "core/error.h"
#include "core/suffix.h"
#include "files/packed_reader.h"
#include "files/raw_file.h"

namespace trifold {

namespace {

struct PackedEnding {
  std::string_view text;
  Packing packing;
};

constexpr std::array<PackedEnding, 4> kEndings{
    {{".gz", Packing::Gzip}, {".zst", Packing::Zstd}, {".xz", Packing::Xz}, {".bz2", Packing::Bzip2}}};

// The entry for the ending of `path`; null if it has none of them.
const PackedEnding* ending_of(std::string_view path) {
  const auto* found = std::find_if(kEndings.begin(), kEndings.end(),
                                   [&](const PackedEnding& ending) { return has_suffix(path, ending.text); });
  return found == kEndings.end() ? nullptr : found;
}

// Reads the bytes of the file itself, in blocks.
class PlainReader final : public ByteReader {
 public:
  explicit PlainReader(const std::string& path) : file_(path, RawFile::Mode::Read), size_(file_.size()) {}

  size_t read(std::span<char> out) override {
    const auto count = std::min(out.size(), static_cast<size_t>(size_ - at_));
    file_.read(std::as_writable_bytes(out.first(count)), at_);
    at_ += static_cast<int64_t>(count);
    return count;
  }

 private:
  RawFile file_;
  int64_t size_;
  int64_t at_ = 0;
};

}  // namespace

Packing packing_of(std::string_view path) {
  const PackedEnding* ending = ending_of(path);
  return ending == nullptr ? Packing::None : ending->packing;
}

std::string_view without_packing(std::string_view path) {
  const PackedEnding* ending = ending_of(path);
  return ending == nullptr ? path : path.substr(0, path.size() - ending->text.size());
}

std::unique_ptr<ByteReader> open_bytes(const std::string& path, Packing packing) {
  switch (packing) {
    case Packing::Gzip:
      return open_gzip(path);
    case Packing::Zstd:
    case Packing::Xz:
    case Packing::Bzip2:
      return open_packed(path, packing);
    case Packing::None:
      break;
  }
  return std::make_unique<PlainReader>(path);
}

void skip_bytes(ByteReader& reader, int64_t count, const std::string& path) {
  std::vector<char> ignored(static_cast<size_t>(std::min<int64_t>(count, int64_t{1} << 20)));
  while (count > 0) {
    const auto part = static_cast<size_t>(std::min<int64_t>(count, std::ssize(ignored)));
    const size_t got = reader.read(std::span(ignored).first(part));
    if (got == 0) bad_input("{} is shorter than it was: byte {} from its end was read before", path, count);
    count -= static_cast<int64_t>(got);
  }
}

}  // namespace trifold
