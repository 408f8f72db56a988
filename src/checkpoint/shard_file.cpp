#include "checkpoint/shard_file.h"

#include <algorithm>

namespace trifold {

namespace {

std::vector<int64_t> lay_out(const std::filesystem::path& path, int64_t step,
                             std::span<const ShardBox> boxes) {
  std::vector<int64_t> offsets;
  Hdf5File file = Hdf5File::create(path);
  write_file_attributes(file, step);
  for (const ShardBox& box : boxes) {
    const std::string dataset = dataset_path(box.tensor, box.rect);
    offsets.push_back(file.reserve(dataset, box.dtype, box.rect.extent));
    if (box.rect.offset.rank() == 0) continue;
    file.set_attribute(dataset, "offset", box.rect.offset.extents());
    file.set_attribute(dataset, "global_shape", box.global.extents());
  }
  file.close();
  return offsets;
}

}  // namespace

void write_file_attributes(Hdf5File& file, int64_t step) {
  file.set_attribute("/", "format", "trifold-checkpoint");
  file.set_attribute("/", "step", std::span<const int64_t>(&step, 1));
}

ShardFile::ShardFile(const std::filesystem::path& path, int64_t step, std::vector<ShardBox> boxes)
    : boxes_(std::move(boxes)),
      offsets_(lay_out(path, step, boxes_)),
      crcs_(boxes_.size(), BlockCrc(kCrcBlock)) {
  file_.emplace(path, File::Mode::Change);
  info_.name = path.filename().string();
  info_.bytes = file_->size();
  file_->reserve(info_.bytes);
}

void ShardFile::append(size_t box, const void* data, size_t bytes) {
  BlockCrc& crc = crcs_[box];
  check(crc.bytes() + static_cast<int64_t>(bytes) <= boxes_[box].bytes(),
        "tensor {}, box {}: more than its {} bytes were written", boxes_[box].tensor,
        to_string(boxes_[box].rect), boxes_[box].bytes());
  const auto* from = static_cast<const char*>(data);
  // Each block is written while it is still in the cache.
  for (size_t done = 0; done < bytes;) {
    const size_t part = std::min(bytes - done, static_cast<size_t>(kCrcBlock - crc.bytes() % kCrcBlock));
    const int64_t at = offsets_[box] + crc.bytes();
    crc.add(from + done, part);
    file_->write(from + done, part, at);
    done += part;
  }
}

void ShardFile::finish() {
  std::vector<KnownRegion> regions;
  for (size_t box = 0; box < boxes_.size(); ++box) {
    check(crcs_[box].bytes() == boxes_[box].bytes(),
          "tensor {}, box {}: only {} of its {} bytes were written", boxes_[box].tensor,
          to_string(boxes_[box].rect), crcs_[box].bytes(), boxes_[box].bytes());
    regions.push_back({offsets_[box], boxes_[box].bytes(), crcs_[box].whole()});
  }
  file_->sync();
  std::sort(regions.begin(), regions.end(),
            [](const KnownRegion& a, const KnownRegion& b) { return a.offset < b.offset; });
  info_.frame_crc = crc_of_rest(*file_, regions);
  info_.crc = crc_of_file(*file_, regions);
  file_->close();
}

PieceInfo ShardFile::piece(size_t box) const {
  PieceInfo piece;
  piece.rect = boxes_[box].rect;
  piece.byte_offset = offsets_[box];
  piece.crc = crcs_[box].whole();
  if (boxes_[box].bytes() > kCrcBlock) piece.blocks = crcs_[box].blocks();
  return piece;
}

}  // namespace trifold
