#include <zlib.h>

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "files/packed_reader.h"
#include "files/raw_file.h"

namespace trifold {

namespace {

constexpr size_t kGzipInput = size_t{1} << 18;

class GzipReader final : public ByteReader {
 public:
  explicit GzipReader(const std::string& path)
      : file_(path, RawFile::Mode::Read), size_(file_.size()), input_(kGzipInput) {
    // 15: the largest window; 16: with the frame of gzip.
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
        bad_input("{} is a damaged gzip file ({}, at byte {}): create it again, or leave it out",
                  file_.path(), state_.msg != nullptr ? state_.msg : zError(status),
                  at_ - int64_t{state_.avail_in});
      }
    }
    const size_t count = out.size() - state_.avail_out;
    if (count == 0 && inside_)
      bad_input(
          "{}: the gzip file is truncated: it ends at byte {}, in the middle of its data; "
          "create it again, or leave it out",
          file_.path(), size_);
    return count;
  }

 private:
  bool skip_zeros() {
    const uInt before = state_.avail_in;
    while (state_.avail_in > 0 && *state_.next_in == 0) {
      ++state_.next_in;
      --state_.avail_in;
    }
    zeros_ += before - state_.avail_in;
    if (zeros_ > kMostZeros)
      bad_input("{}: more than {} zero bytes follow its gzip data: create it again, or leave it out",
                file_.path(), kMostZeros);
    return state_.avail_in < before;
  }

  bool has_input() {
    if (state_.avail_in > 0) return true;
    const auto count = static_cast<size_t>(std::min<int64_t>(std::ssize(input_), size_ - at_));
    file_.read(std::as_writable_bytes(std::span(input_).first(count)), at_);
    at_ += static_cast<int64_t>(count);
    state_.avail_in = static_cast<uInt>(count);
    state_.next_in = reinterpret_cast<Bytef*>(input_.data());
    return count > 0;
  }

  RawFile file_;
  int64_t size_;
  int64_t at_ = 0;  // offset in the file up to which it was read into input_
  std::vector<char> input_;
  z_stream state_{};
  bool inside_ = true;  // a member has begun and not ended
  int64_t zeros_ = 0;   // between and after members
};

}  // namespace

std::unique_ptr<ByteReader> open_gzip(const std::string& path) { return std::make_unique<GzipReader>(path); }

}  // namespace trifold
