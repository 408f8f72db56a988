#include "checkpoint/piece_reader.h"

#include <algorithm>
#include <set>

#include "checkpoint/convert_floats.h"

namespace trifold {

namespace {

// The flat index of an element in the row-major block `box`.
int64_t flat_index(const Rect& box, const Shape& at) {
  int64_t index = 0;
  for (int dim = 0; dim < at.rank(); ++dim) index = index * box.extent[dim] + at[dim] - box.offset[dim];
  return index;
}

Shape last_corner(const Rect& rect) {
  Shape at = rect.offset;
  for (int dim = 0; dim < at.rank(); ++dim) at[dim] += rect.extent[dim] - 1;
  return at;
}

// Reads one stored box block by block. Each block is checked before any of its elements is used.
class PieceReader {
 public:
  PieceReader(const File& file, const PieceRead& read)
      : file_(file),
        read_(read),
        dtype_(read.tensor->dtype),
        size_(static_cast<int64_t>(size_of(dtype_))),
        elements_(read.piece->rect.elements()),
        of_block_(kCrcBlock / size_),
        block_(static_cast<size_t>(std::min(of_block_, elements_) * size_)) {}

  void run() {
    std::set<int64_t> blocks;
    for (const auto& part : read_.parts) {
      const int64_t last = flat_index(read_.piece->rect, last_corner(part.second)) / of_block_;
      for (int64_t b = flat_index(read_.piece->rect, part.second.offset) / of_block_; b <= last; ++b)
        blocks.insert(b);
    }
    auto expected = blocks.begin();
    int64_t ahead = 0;
    for (const int64_t block : blocks) {
      // The system reads ahead in consecutive blocks anyway, and requesting them is slower.
      for (; expected != blocks.end() && ahead < kAhead; ++expected, ++ahead)
        if (!blocks.contains(*expected - 1))
          file_.expect(static_cast<size_t>(bytes_of(*expected)), place_of(*expected));
      --ahead;
      if (std::byte* place = place_in_wanted())
        load(block, place + block * kCrcBlock);
      else
        take(block);
    }
  }

 private:
  // Blocks that the system may prefetch while others are checked and copied.
  static constexpr int64_t kAhead = 8;

  void take(int64_t block) {
    const int64_t begin = block * of_block_;
    const int64_t end = std::min(elements_, begin + of_block_);
    const std::vector<Rect> rects = rects_of_range(read_.piece->rect, begin, end);
    bool is_loaded = false;
    int64_t done = 0;
    for (const Rect& rect : rects) {
      for (const auto& [wanted, part] : read_.parts)
        if (const auto common = intersect(rect, part)) {
          if (!is_loaded) load(block, block_.data());
          is_loaded = true;
          copy(*wanted, rect, done, *common);
        }
      done += rect.elements();
    }
  }

  int64_t bytes_of(int64_t block) const { return std::min(kCrcBlock, elements_ * size_ - block * kCrcBlock); }
  int64_t place_of(int64_t block) const { return read_.piece->byte_offset + block * kCrcBlock; }

  // The destination of the whole box, if it is wanted as a whole and is contiguous there, so that nothing has
  // to be copied; otherwise null.
  std::byte* place_in_wanted() const {
    const Rect& box = read_.piece->rect;
    if (read_.parts.size() != 1 || read_.parts.front().second != box) return nullptr;
    const NamedTensor& wanted = *read_.parts.front().first;
    if (wanted.data.dtype != dtype_ || wanted.stored != nullptr) return nullptr;
    for (int dim = 1; dim < box.extent.rank(); ++dim)
      if (box.extent[dim] != wanted.spec.local.extent[dim]) return nullptr;
    return static_cast<std::byte*>(wanted.data.data) + flat_index(wanted.spec.local, box.offset) * size_;
  }

  void load(int64_t block, std::byte* to) {
    const auto bytes = static_cast<size_t>(bytes_of(block));
    file_.read(to, bytes, place_of(block));
    const uint32_t crc =
        read_.piece->blocks.empty() ? read_.piece->crc : read_.piece->blocks[static_cast<size_t>(block)];
    if (crc_of_memory(to, bytes) != crc)
      bad_input("{}: tensor {}, box {} is damaged: block {} of its elements does not match its checksum",
                file_.path().string(), read_.tensor->name, to_string(read_.piece->rect), block);
  }

  // Copies `part` out of `rect`, whose elements start at element `at` of the block.
  void copy(const NamedTensor& wanted, const Rect& rect, int64_t at, const Rect& part) {
    const std::byte* from = block_.data() + static_cast<size_t>(at * size_);
    const DType to = wanted.data.dtype;
    if (to != dtype_) {
      converted_ = Buffer(static_cast<size_t>(rect.elements()) * size_of(to));
      convert_floats(converted_.data(), to, from, dtype_, rect.elements());
      from = converted_.data();
    }
    if (wanted.stored != nullptr) return store(wanted, from, rect, part);
    copy_rect(wanted.data.data, wanted.spec.local, from, rect, part, size_of(to));
  }

  // Stores `part` through StoredRows; if it is not whole rows, the rows are read first.
  void store(const NamedTensor& wanted, const std::byte* from, const Rect& rect, const Rect& part) {
    Rect rows = wanted.spec.local;
    const int64_t first = part.offset[0] - rows.offset[0];
    rows.offset[0] = part.offset[0];
    rows.extent[0] = part.extent[0];
    const size_t bytes = wanted.row_bytes() * static_cast<size_t>(part.extent[0]);
    if (rows_.bytes() < bytes) rows_ = Buffer(bytes);
    if (part != rows) wanted.stored->read(first, part.extent[0], rows_.data());
    copy_rect(rows_.data(), rows, from, rect, part, size_of(wanted.data.dtype));
    wanted.stored->write(first, part.extent[0], rows_.data());
  }

  const File& file_;
  const PieceRead& read_;
  DType dtype_;
  int64_t size_;      // bytes per element
  int64_t elements_;  // elements of the box
  int64_t of_block_;  // elements per block
  Buffer block_;
  Buffer converted_;
  Buffer rows_;  // rows of a box with StoredRows
};

}  // namespace

void read_piece(const File& file, const PieceRead& read) { PieceReader(file, read).run(); }

}  // namespace trifold
