#include "files/byte_reader.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "files/raw_file.h"

namespace trifold {

namespace {

constexpr size_t kInput = size_t{1} << 18;
constexpr int64_t kMostZeros = int64_t{1} << 20;

// The bytes of the file itself, in blocks.
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

class GzipReader final : public ByteReader {
 public:
  explicit GzipReader(const std::string& path) : path_(path), file_(path), input_(kInput) {
    // 15: the largest window; 16: gzip framing.
    check(inflateInit2(&state_, 15 + 16) == Z_OK, "{}: zlib has no memory", path);
  }
  ~GzipReader() override { inflateEnd(&state_); }
  GzipReader(const GzipReader&) = delete;
  GzipReader& operator=(const GzipReader&) = delete;

  size_t read(std::span<char> out) override {
    state_.next_out = reinterpret_cast<Bytef*>(out.data());
    state_.avail_out = static_cast<uInt>(out.size());
    while (state_.avail_out > 0 && has_input()) {
      if (!inside_) {
        if (skip_zeros()) continue;
        inflateReset(&state_);  // another member follows
      }
      inside_ = true;
      const int status = inflate(&state_, Z_NO_FLUSH);
      if (status == Z_STREAM_END) {
        inside_ = false;
      } else if (status != Z_OK && status != Z_BUF_ERROR) {
        bad_input("{}: is a damaged gzip file ({}): create it again, or leave it out", path_,
                  state_.msg != nullptr ? state_.msg : zError(status));
      }
    }
    const size_t count = out.size() - state_.avail_out;
    if (count == 0 && inside_)
      bad_input(
          "{}: the gzip file is truncated: it ends in the middle of its data; create it again, or leave it "
          "out",
          path_);
    return count;
  }

 private:
  // Tapes and block devices pad the file after the last member with zeros up to the end of a block.
  bool skip_zeros() {
    const uInt before = state_.avail_in;
    while (state_.avail_in > 0 && *state_.next_in == 0) {
      ++state_.next_in;
      --state_.avail_in;
    }
    zeros_ += before - state_.avail_in;
    if (zeros_ > kMostZeros)
      bad_input("{}: more than {} zero bytes follow its gzip data: create it again, or leave it out", path_,
                kMostZeros);
    return state_.avail_in < before;
  }

  bool has_input() {
    if (state_.avail_in > 0) return true;
    state_.avail_in = static_cast<uInt>(file_.read(input_));
    state_.next_in = reinterpret_cast<Bytef*>(input_.data());
    return state_.avail_in > 0;
  }

  std::string path_;
  PlainReader file_;
  std::vector<char> input_;
  z_stream state_{};
  bool inside_ = true;  // a member has begun and not ended
  int64_t zeros_ = 0;   // between and after members
};

class ZstdReader final : public ByteReader {
 public:
  explicit ZstdReader(const std::string& path)
      : path_(path), file_(path), input_(kInput), state_(ZSTD_createDStream()) {
    check(state_ != nullptr, "{}: zstd has no memory", path);
  }
  ~ZstdReader() override { ZSTD_freeDStream(state_); }
  ZstdReader(const ZstdReader&) = delete;
  ZstdReader& operator=(const ZstdReader&) = delete;

  size_t read(std::span<char> out) override {
    ZSTD_outBuffer target{out.data(), out.size(), 0};
    while (target.pos < target.size) {
      if (source_.pos == source_.size) {
        source_ = {input_.data(), file_.read(input_), 0};
        // Without input zstd may still hold bytes that did not fit before.
        if (source_.size == 0 && !more_) break;
      }
      const size_t before = target.pos;
      const size_t status = ZSTD_decompressStream(state_, &target, &source_);
      if (ZSTD_isError(status) != 0)
        bad_input("{}: is a damaged zstd file ({}): create it again, or leave it out", path_,
                  ZSTD_getErrorName(status));
      inside_ = status != 0;
      more_ = inside_ && target.pos == target.size;
      if (source_.size == 0 && target.pos == before) break;
    }
    if (target.pos == 0 && inside_)
      bad_input(
          "{}: the zstd file is truncated: it ends in the middle of its data; create it again, or leave it "
          "out",
          path_);
    return target.pos;
  }

 private:
  std::string path_;
  PlainReader file_;
  std::vector<char> input_;
  ZSTD_DStream* state_;
  ZSTD_inBuffer source_{nullptr, 0, 0};
  bool inside_ = true;  // a frame has begun and not ended
  bool more_ = false;
};

}  // namespace

Packing packing_of(std::string_view path) {
  if (path.ends_with(".gz")) return Packing::Gzip;
  return path.ends_with(".zst") ? Packing::Zstd : Packing::None;
}

std::unique_ptr<ByteReader> open_bytes(const std::string& path, Packing packing) {
  switch (packing) {
    case Packing::Gzip:
      return std::make_unique<GzipReader>(path);
    case Packing::Zstd:
      return std::make_unique<ZstdReader>(path);
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
    if (got == 0) bad_input("{}: is shorter than it was: byte {} from its end was read before", path, count);
    count -= static_cast<int64_t>(got);
  }
}

}  // namespace trifold
